import CLinux
import Glibc

/// Result of reading from or writing to a non-blocking socket.
public enum Transfer: Sendable, Equatable {
    case moved(Int)
    /// The socket has no bytes to read, or no room to write.
    case wouldBlock
    /// The peer will send no more bytes.
    case finished
    case failed(Int32)
}

/// System calls on TCP sockets. Descriptors are plain numbers here, because the caller keeps thousands of them in a
/// table and owns them.
public enum StreamSocket {
    /// Opens a listener that shares its port with the listeners of the other socket loops.
    public static func listen(on address: SocketAddress, backlog: Int32) throws(SystemError) -> Int32 {
        let descriptor = try bound(to: address, sharingPort: true)
        do throws(SystemError) {
            _ = try systemCall("listen on", address.description) { Glibc.listen(descriptor, backlog) }
        } catch {
            close(descriptor)
            throw error
        }
        return descriptor
    }

    /// Throws if a program listens on the address. Listeners of a hub share their port. Without this check, another
    /// program of the same user could share it, too, and each would get some of the clients.
    public static func checkIsFree(_ address: SocketAddress) throws(SystemError) {
        close(try bound(to: address, sharingPort: false))
    }

    private static func bound(to address: SocketAddress, sharingPort: Bool) throws(SystemError) -> Int32 {
        let family = address.isIPv6 ? AF_INET6 : AF_INET
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        let descriptor = try systemCall("socket for", address.description) { socket(family, kind, 0) }
        set(descriptor, SOL_SOCKET, SO_REUSEADDR, 1)
        if sharingPort { set(descriptor, SOL_SOCKET, SO_REUSEPORT, 1) }
        if address.isIPv6 { set(descriptor, Int32(IPPROTO_IPV6), IPV6_V6ONLY, address.isAny ? 0 : 1) }
        do throws(SystemError) {
            _ = try systemCall("bind", address.description) {
                // SAFETY: the address lives for the call.
                unsafe address.withKernelForm { unsafe bind(descriptor, $0, $1) }
            }
        } catch {
            close(descriptor)
            throw error
        }
        return descriptor
    }

    /// Begins to connect. The socket becomes writable when the attempt ends; `pendingFailure` returns the result. With
    /// `source`, the connection uses its address, so that one machine can use the ports of several addresses. The port
    /// of `source` does not matter.
    public static func connect(
        to address: SocketAddress, from source: SocketAddress? = nil
    ) throws(SystemError) -> Int32 {
        let family = address.isIPv6 ? AF_INET6 : AF_INET
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        let descriptor = try systemCall("socket for", address.description) { socket(family, kind, 0) }
        do throws(SystemError) {
            if let source { try chooseSource(descriptor, source) }
            // SAFETY: the address lives for the call.
            _ = try systemCall("connect to", address.description) {
                unsafe address.withKernelForm { unsafe Glibc.connect(descriptor, $0, $1) }
            }
        } catch {
            if error.code != EINPROGRESS {
                close(descriptor)
                throw error
            }
        }
        return descriptor
    }

    /// Binds the socket to the source address. `connect` chooses the port later, because then many connections can
    /// share one port.
    private static func chooseSource(_ descriptor: Int32, _ source: SocketAddress) throws(SystemError) {
        set(descriptor, Int32(IPPROTO_IP), IP_BIND_ADDRESS_NO_PORT, 1)
        _ = try systemCall("bind", source.description) {
            // SAFETY: the address lives for the call.
            unsafe source.with(port: 0).withKernelForm { unsafe Glibc.bind(descriptor, $0, $1) }
        }
    }

    /// Returns the address that a socket is bound to.
    public static func localAddress(of descriptor: Int32) throws(SystemError) -> SocketAddress {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        _ = try systemCall("address of", "socket") {
            // SAFETY: storage and length are locals, the length says how large the storage is.
            unsafe withUnsafeMutablePointer(to: &storage) { storage in
                unsafe storage.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    unsafe getsockname(descriptor, $0, &length)
                }
            }
        }
        guard let address = SocketAddress(storage) else {
            throw SystemError(operation: "address of", subject: "socket", code: EAFNOSUPPORT)
        }
        return address
    }

    /// Returns two connected non-blocking sockets within this process.
    public static func pair() throws(SystemError) -> (Int32, Int32) {
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        var ends: (Int32, Int32) = (-1, -1)
        // SAFETY: room for two descriptors, side by side in a local tuple.
        _ = try systemCall("socketpair", "") {
            unsafe withUnsafeMutableBytes(of: &ends) { room in
                unsafe socketpair(AF_UNIX, kind, 0, room.assumingMemoryBound(to: Int32.self).baseAddress)
            }
        }
        return ends
    }

    public enum Acceptance: Sendable {
        case accepted(Int32, SocketAddress)
        case nobodyWaits
        /// The process or the machine has no free descriptor.
        case outOfDescriptors(Int32)
        case outOfMemory(Int32)
        /// Failure of a connection that was lost before it was accepted. The next connection may succeed.
        case lost
    }

    public static func accept(from listener: Int32) -> Acceptance {
        var peer = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        // SAFETY: storage and length are locals, the length says how large the storage is.
        let descriptor = unsafe tw_accept(listener, &peer, &length)
        let code = errno
        guard descriptor < 0 else { return .accepted(descriptor, SocketAddress(peer) ?? .anyIPv4(port: 0)) }
        switch code {
        case EAGAIN, EINVAL, EBADF: return .nobodyWaits
        case EMFILE, ENFILE: return .outOfDescriptors(code)
        case ENOBUFS, ENOMEM: return .outOfMemory(code)
        default: return .lost
        }
    }

    /// Turns off Nagle's algorithm, because the hub combines small messages itself. If `sendBuffer` is not nil, it
    /// limits the kernel's send buffer.
    public static func prepare(_ descriptor: Int32, sendBuffer: Int?) {
        set(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, 1)
        if let sendBuffer { set(descriptor, SOL_SOCKET, SO_SNDBUF, Int32(clamping: sendBuffer)) }
    }

    @inline(never)
    public static func receive(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) -> Transfer {
        while true {
            // SAFETY: the kernel writes within the buffer that the caller owns.
            let count = unsafe recv(descriptor, buffer.baseAddress, buffer.count, 0)
            if count > 0 { return .moved(count) }
            if count == 0 { return .finished }
            let code = errno
            if code != EINTR { return outcome(of: code) }
        }
    }

    @inline(never)
    public static func send(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Transfer {
        while true {
            // SAFETY: the kernel reads within the buffer that the caller owns.
            let count = unsafe Glibc.send(descriptor, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL))
            if count >= 0 { return .moved(count) }
            let code = errno
            if code != EINTR { return outcome(of: code) }
        }
    }

    /// Sends several pieces in one system call.
    @inline(never)
    public static func send(_ descriptor: Int32, pieces: UnsafeMutableBufferPointer<iovec>) -> Transfer {
        while true {
            // SAFETY: the caller's pieces outlive the call; the kernel only reads them.
            var message = unsafe msghdr()
            unsafe message.msg_iov = pieces.baseAddress
            unsafe message.msg_iovlen = pieces.count
            let count = unsafe sendmsg(descriptor, &message, Int32(MSG_NOSIGNAL))
            if count >= 0 { return .moved(count) }
            let code = errno
            if code != EINTR { return outcome(of: code) }
        }
    }

    /// Returns the result that an errno stands for.
    public static func outcome(of code: Int32) -> Transfer {
        code == EAGAIN || code == EINTR || code == ENOBUFS ? .wouldBlock : .failed(code)
    }

    /// Tells the peer that this side will send no more bytes.
    public static func finishSending(_ descriptor: Int32) { _ = shutdown(descriptor, Int32(SHUT_WR)) }

    /// Closes the socket with a reset. The peer learns of it immediately, and the kernel discards unsent bytes.
    public static func reset(_ descriptor: Int32) {
        var now = linger(l_onoff: 1, l_linger: 0)
        // SAFETY: a local of the size given.
        _ = unsafe setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &now, socklen_t(MemoryLayout<linger>.size))
        Glibc.close(descriptor)
    }

    public static func close(_ descriptor: Int32) { _ = Glibc.close(descriptor) }

    /// Returns the errno with which the kernel ended the connection; 0 if it did not.
    public static func pendingFailure(of descriptor: Int32) -> Int32 {
        var code: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        // SAFETY: two locals; the length says how large the first is.
        return unsafe getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length) == 0 ? code : errno
    }

    private static func set(_ descriptor: Int32, _ level: Int32, _ option: Int32, _ value: Int32) {
        var value = value
        // SAFETY: a local of the size given. An option the kernel lacks leaves its default, which works too.
        _ = unsafe setsockopt(descriptor, level, option, &value, socklen_t(MemoryLayout<Int32>.size))
    }
}
