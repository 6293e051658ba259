import Glibc
import Net
import System

struct ClientFailure: Error {
    let operation: String
    let code: Int32
}

/// A plain blocking TCP client. Reads wait at most for `patience`; then the test fails instead of hanging.
final class TestClient: @unchecked Sendable {
    // Each client is used by one thread at a time.
    private(set) var descriptor: Int32

    static let patience = 20

    init(port: UInt16, receiveBuffer: Int32? = nil) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw ClientFailure(operation: "socket", code: errno) }
        if var receiveBuffer { setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, 4) }
        var patience = timeval(tv_sec: Self.patience, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        var one: Int32 = 1
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &one, 4)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        let answer = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard answer == 0 else {
            let code = errno
            close()
            throw ClientFailure(operation: "connect", code: code)
        }
    }

    deinit { close() }

    func close() {
        if descriptor >= 0 { Glibc.close(descriptor) }
        descriptor = -1
    }

    func reset() {
        StreamSocket.reset(descriptor)
        descriptor = -1
    }

    func finishSending() { shutdown(descriptor, Int32(SHUT_WR)) }

    func send(_ text: String) throws { try send(Array(text.utf8)) }

    func send(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {
            let count = bytes.withUnsafeBytes { all in
                let rest = UnsafeRawBufferPointer(rebasing: all[sent...])
                return Glibc.send(descriptor, rest.baseAddress, rest.count, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { throw ClientFailure(operation: "send", code: errno) }
            sent += count
        }
    }

    /// Exactly this many bytes.
    func receive(_ wanted: Int) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: wanted)
        var filled = 0
        while filled < wanted {
            let count = bytes.withUnsafeMutableBytes { all in
                let rest = UnsafeMutableRawBufferPointer(rebasing: all[filled...])
                return recv(descriptor, rest.baseAddress, rest.count, 0)
            }
            guard count > 0 else { throw ClientFailure(operation: "receive", code: count == 0 ? 0 : errno) }
            filled += count
        }
        return bytes
    }

    func receiveText(_ wanted: Int) throws -> String { String(decoding: try receive(wanted), as: UTF8.self) }

    /// Everything until the peer closes; throws when it closes by force.
    func receiveAll() throws -> [UInt8] {
        var all: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = part.withUnsafeMutableBytes { recv(descriptor, $0.baseAddress, $0.count, 0) }
            if count == 0 { return all }
            guard count > 0 else { throw ClientFailure(operation: "receive", code: errno) }
            all += part[..<count]
        }
    }

    /// The peer is gone, politely or not; whatever it still sent is skipped.
    func waitForEnd() -> Bool {
        do {
            _ = try receiveAll()
            return true
        } catch let failure as ClientFailure {
            return failure.code == ECONNRESET
        } catch {
            return false
        }
    }
}
