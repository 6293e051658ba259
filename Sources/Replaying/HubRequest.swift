import Bytes
import Diagnostics
import Glibc
import System

/// Why a hub could not be asked.
public struct HubFailure: Error, Sendable, CustomStringConvertible {
    public let description: String
}

/// One request to a hub over HTTP, on a connection of its own.
struct HubRequest {
    let hub: HubAddress
    let token: String
    let isInterrupted: () -> Bool

    struct Answer {
        var status: Int
        /// As it came, perhaps in chunks.
        var body: String
    }

    private static let slice: Int32 = 100
    private static let mostBytes = 1 << 20

    func get(_ target: String) throws -> Answer { try answer("GET", target, []) }

    func post(_ target: String, _ json: [UInt8]) throws -> Answer { try answer("POST", target, json) }

    private func answer(_ method: String, _ target: String, _ body: [UInt8]) throws -> Answer {
        var request = ByteWriter(capacity: body.count + 512)
        request.append("\(method) \(hub.path)\(target) HTTP/1.1\r\nHost: \(hub.place)\r\nConnection: close\r\n")
        request.append("Authorization: Bearer \(token)\r\napikey: \(token)\r\nAccept: application/json\r\n")
        if method == "POST" {
            request.append("Content-Type: application/json\r\nContent-Length: \(body.count)\r\n")
        }
        request.append("\r\n")
        request.append(body)
        do {
            return try answer(to: request.bytes.copied())
        } catch let error as SystemError {
            throw HubFailure(description: "\(hub): \(error)")
        }
    }

    private func answer(to request: [UInt8]) throws -> Answer {
        let descriptor = try connected()
        defer { StreamSocket.reset(descriptor) }
        var sent = 0
        while sent < request.count {
            try wait(descriptor, writing: true)
            // SAFETY: the kernel reads within the array that lives for the closure.
            let transfer = unsafe request.withUnsafeBytes {
                unsafe StreamSocket.send(descriptor, UnsafeRawBufferPointer(rebasing: $0[sent...]))
            }
            switch transfer {
            case .moved(let count): sent += count
            case .wouldBlock: continue
            case .finished, .failed: throw HubFailure(description: "\(hub) closed the connection")
            }
        }
        var bytes: [UInt8] = []
        while bytes.count < Self.mostBytes {
            try wait(descriptor, writing: false)
            var room = [UInt8](repeating: 0, count: 16 << 10)
            // SAFETY: the kernel writes within the array that lives for the closure.
            let transfer = unsafe room.withUnsafeMutableBytes { unsafe StreamSocket.receive(descriptor, into: $0) }
            switch transfer {
            case .moved(let count): bytes += room.prefix(count)
            case .wouldBlock: continue
            case .finished: return try Self.parsed(bytes, hub)
            case .failed: throw HubFailure(description: "\(hub) closed the connection")
            }
        }
        return try Self.parsed(bytes, hub)
    }

    private func connected() throws -> Int32 {
        let addresses = try SocketAddress.resolve(hub.host, port: hub.port)
        var failure: any Error = HubFailure(description: "\(hub): nobody has that name")
        for address in addresses {
            do {
                let descriptor = try StreamSocket.connect(to: address)
                do {
                    try wait(descriptor, writing: true)
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

    private func wait(_ descriptor: Int32, writing: Bool) throws {
        for _ in 0..<Limits.replayPatienceMilliseconds / 20 / Int(Self.slice) {
            if isInterrupted() { throw ReplayInterruption() }
            let ready = Poll.wait(
                socket: descriptor, forWriting: writing, interrupt: nil, timeoutMilliseconds: Self.slice)
            if ready.socket { return }
        }
        throw HubFailure(description: "\(hub) does not answer")
    }

    private static func parsed(_ bytes: [UInt8], _ hub: HubAddress) throws -> Answer {
        let text = String(decoding: bytes, as: UTF8.self)
        let words = text.prefix { !$0.isNewline }.split(separator: " ")
        guard words.count > 1, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]) else {
            throw HubFailure(description: "\(hub) gives no answer that is HTTP")
        }
        return Answer(status: status, body: text)
    }
}
