import Glibc
import System

/// Error for an operation of a client that did not succeed in time, with errno if there is one.
public struct ClientFailure: Error {
    public let operation: String
    public let code: Int32

    public init(operation: String, code: Int32) { (self.operation, self.code) = (operation, code) }
}

/// Blocking TCP client of a server on loopback. An operation waits at most `patience` seconds; then it throws.
public final class TestClient: @unchecked Sendable {
    // Only one thread at a time uses a client.
    public private(set) var descriptor: Int32

    public static let patience = 120

    public init(port: UInt16, receiveBuffer: Int32? = nil) throws {
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

    public func close() {
        if descriptor >= 0 { Glibc.close(descriptor) }
        descriptor = -1
    }

    public func reset() {
        StreamSocket.reset(descriptor)
        descriptor = -1
    }

    public func finishSending() { shutdown(descriptor, Int32(SHUT_WR)) }

    public func send(_ text: String) throws { try send(Array(text.utf8)) }

    public func send(_ bytes: [UInt8]) throws {
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

    /// Receives exactly `wanted` bytes.
    public func receive(_ wanted: Int) throws -> [UInt8] {
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

    public func receiveText(_ wanted: Int) throws -> String { String(decoding: try receive(wanted), as: UTF8.self) }

    /// Appends the next bytes, at least one. Returns false if the peer has closed the connection.
    public func receive(appendingTo bytes: inout [UInt8]) throws -> Bool {
        let (start, room) = (bytes.count, 64 << 10)
        bytes.append(contentsOf: [UInt8](repeating: 0, count: room))
        let count = bytes.withUnsafeMutableBytes { all in
            recv(descriptor, UnsafeMutableRawBufferPointer(rebasing: all[start...]).baseAddress, room, 0)
        }
        let code = errno
        bytes.removeLast(room - max(0, count))
        guard count >= 0 else { throw ClientFailure(operation: "receive", code: code) }
        return count > 0
    }

    /// Receives everything until the peer closes the connection. Throws if the peer resets it.
    public func receiveAll() throws -> [UInt8] {
        var all: [UInt8] = []
        while try receive(appendingTo: &all) {}
        return all
    }

    /// Ignores everything that the peer still sends. Returns true when the peer has closed or reset the connection.
    public func waitForEnd() -> Bool {
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
