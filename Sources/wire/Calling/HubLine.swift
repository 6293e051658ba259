import Crypto
import System

/// Connection to a hub, plain or with TLS. It waits in short steps, so that the caller can interrupt it.
final class HubLine {
    private let hub: HubAddress
    private let descriptor: Int32
    private let session: TLSSession?
    private let patience: Patience

    /// Longest wait for one operation on the connection, and the condition that interrupts it.
    struct Patience {
        var milliseconds: Int
        var isInterrupted: () -> Bool

        static let slice: Int32 = 100
    }

    init(_ hub: HubAddress, _ trust: TLSContext?, _ patience: Patience) throws {
        self.hub = hub
        self.patience = patience
        descriptor = try Self.connected(hub, patience)
        guard hub.isSecure else {
            session = nil
            return
        }
        guard let session = trust?.session(on: descriptor, expecting: hub.host) else {
            StreamSocket.reset(descriptor)
            throw HubFailure("\(hub): cannot start TLS")
        }
        self.session = session
        do {
            try shakeHands(session)
        } catch {
            StreamSocket.reset(descriptor)
            throw error
        }
    }

    func close() {
        session?.finish()
        StreamSocket.reset(descriptor)
    }

    private static func connected(_ hub: HubAddress, _ patience: Patience) throws -> Int32 {
        var failure: any Error = HubFailure("\(hub): no host has that name")
        for address in try SocketAddress.resolve(hub.host, port: hub.port) {
            do {
                let descriptor = try StreamSocket.connect(to: address)
                do {
                    try wait(descriptor, writing: true, hub, patience)
                    let code = StreamSocket.pendingFailure(of: descriptor)
                    guard code == 0 else {
                        throw SystemError(operation: "connect to", subject: address.description, code: code)
                    }
                    return descriptor
                } catch {
                    StreamSocket.reset(descriptor)
                    throw error
                }
            } catch let error as SystemError {
                failure = error
            }
        }
        throw failure
    }

    private static func wait(_ descriptor: Int32, writing: Bool, _ hub: HubAddress, _ patience: Patience) throws {
        for _ in 0..<max(1, patience.milliseconds / Int(Patience.slice)) {
            if patience.isInterrupted() { throw HubInterruption() }
            let ready = Poll.wait(
                socket: descriptor, forWriting: writing, interrupt: nil, timeoutMilliseconds: Patience.slice)
            if ready.socket { return }
        }
        throw HubFailure("\(hub) does not answer")
    }

    private func wait(writing: Bool) throws { try Self.wait(descriptor, writing: writing, hub, patience) }

    private func shakeHands(_ session: TLSSession) throws {
        while true {
            switch session.handshake() {
            case .moved: return
            case .wantsRead: try wait(writing: false)
            case .wantsWrite: try wait(writing: true)
            case .finished, .failed:
                let reason =
                    session.certificateTrouble ?? "it does not use TLS, or no version that this program supports"
                throw HubFailure("\(hub): \(reason)")
            }
        }
    }

    // MARK: Bytes

    func send(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {
            // SAFETY: the sender reads within the array that lives for the closure.
            let count = try unsafe bytes.withUnsafeBytes { try unsafe sendSome(.init(rebasing: $0[sent...])) }
            sent += count
        }
    }

    private func sendSome(_ bytes: UnsafeRawBufferPointer) throws -> Int {
        guard let session else {
            try wait(writing: true)
            switch unsafe StreamSocket.send(descriptor, bytes) {
            case .moved(let count): return count
            case .wouldBlock: return 0
            case .finished, .failed: throw gone
            }
        }
        switch unsafe session.write(bytes) {
        case .moved(let count): return count
        case .wantsRead: try wait(writing: false)
        case .wantsWrite: try wait(writing: true)
        case .finished, .failed: throw gone
        }
        return 0
    }

    /// Returns bytes that were received, waiting for some if necessary; nil after the end of input.
    func receive() throws -> [UInt8]? {
        var room = [UInt8](repeating: 0, count: 16 << 10)
        while true {
            // SAFETY: the receiver writes within the array that lives for the closure.
            let outcome = try unsafe room.withUnsafeMutableBytes { try unsafe receiveSome($0) }
            switch outcome {
            case .some(let count) where count > 0: return Array(room.prefix(count))
            case .some: continue
            case .none: return nil
            }
        }
    }

    private func receiveSome(_ room: UnsafeMutableRawBufferPointer) throws -> Int? {
        // SAFETY: both calls write at most as many bytes as there is room for, and keep no pointer to it.
        guard let session else {
            try wait(writing: false)
            switch unsafe StreamSocket.receive(descriptor, into: room) {
            case .moved(let count): return count
            case .wouldBlock: return 0
            case .finished: return nil
            case .failed: throw gone
            }
        }
        switch unsafe session.read(into: room) {
        case .moved(let count): return count
        case .wantsRead: try wait(writing: false)
        case .wantsWrite: try wait(writing: true)
        case .finished: return nil
        case .failed: throw gone
        }
        return 0
    }

    private var gone: HubFailure { HubFailure("\(hub) closed the connection") }
}
