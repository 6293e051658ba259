import CLinux
import Glibc

/// Address of a TCP socket: an IPv4 or IPv6 address, and a port.
public struct SocketAddress: Sendable, Hashable {
    /// First eight bytes of the address, in network order. An IPv4 address uses only the first four of them.
    private let high: UInt64
    private let low: UInt64
    private let scope: UInt32
    public let port: UInt16
    public let isIPv6: Bool

    /// Returns the wildcard address, which stands for all addresses of this machine, IPv4 and IPv6.
    public static func any(port: UInt16) -> SocketAddress { SocketAddress(high: 0, low: 0, port: port, isIPv6: true) }
    public static func anyIPv4(port: UInt16) -> SocketAddress {
        SocketAddress(high: 0, low: 0, port: port, isIPv6: false)
    }
    public static func loopback(port: UInt16) -> SocketAddress {
        SocketAddress(high: UInt64(0x7f00_0001) << 32, low: 0, port: port, isIPv6: false)
    }

    /// Returns the address 127.0.0.0 plus `number`, which is also an address of this machine.
    public static func loopback(number: UInt32, port: UInt16) -> SocketAddress {
        precondition(number < 1 << 24, "one network in eight bits of four")
        return SocketAddress(high: UInt64(0x7f00_0000 | number) << 32, low: 0, port: port, isIPv6: false)
    }

    private init(high: UInt64, low: UInt64, scope: UInt32 = 0, port: UInt16, isIPv6: Bool) {
        self.high = high
        self.low = low
        self.scope = scope
        self.port = port
        self.isIPv6 = isIPv6
    }

    public func with(port: UInt16) -> SocketAddress {
        SocketAddress(high: high, low: low, scope: scope, port: port, isIPv6: isIPv6)
    }

    /// Network of the address: the first half of an IPv6 address, or the whole IPv4 address (even if an IPv6 socket
    /// reports it).
    public var network: UInt64 { isIPv6 && high == 0 ? low : high }

    /// True for an address of this machine's loopback network: 127.0.0.0/8, also as an IPv6 socket reports it, and ::1.
    public var isLoopback: Bool {
        if !isIPv6 { return high >> 56 == 127 }
        return high == 0 && (low == 1 || (low >> 32 == 0xffff && (low >> 24) & 0xff == 127))
    }

    public var isAny: Bool { high == 0 && low == 0 }

    /// Resolves a host name or a numeric address. The addresses have the resolver's order. May query the network and
    /// block.
    public static func resolve(_ host: String, port: UInt16) throws(SystemError) -> [SocketAddress] {
        // SAFETY: the hints are a local, the answer's list is freed below, the host lives for the call.
        var hints = unsafe addrinfo()
        unsafe hints.ai_family = AF_UNSPEC
        unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        unsafe hints.ai_flags = AI_PASSIVE
        var list: UnsafeMutablePointer<addrinfo>?
        let code = unsafe getaddrinfo(host, nil, &hints, &list)
        defer { if let list = unsafe list { unsafe freeaddrinfo(list) } }
        guard code == 0 else {
            throw SystemError(operation: "resolve", subject: host, code: code == EAI_SYSTEM ? errno : ENXIO)
        }
        var found: [SocketAddress] = []
        var entry = unsafe list
        while let one = unsafe entry {
            // SAFETY: an entry's address is as long as it says, and lives until the list is freed.
            if let bytes = unsafe one.pointee.ai_addr {
                var storage = sockaddr_storage()
                let length = unsafe min(Int(one.pointee.ai_addrlen), MemoryLayout<sockaddr_storage>.size)
                unsafe memcpy(&storage, bytes, length)
                if let address = SocketAddress(storage)?.with(port: port), !found.contains(address) {
                    found.append(address)
                }
            }
            unsafe entry = one.pointee.ai_next
        }
        return found
    }
}

extension SocketAddress {
    /// Creates an address from the kernel's form. If an IPv6 socket reports an IPv4 address, the result is a plain IPv4
    /// address.
    init?(_ storage: sockaddr_storage) {
        var storage = storage
        switch Int32(storage.ss_family) {
        case AF_INET:
            // SAFETY: the family says which structure lies in the storage, which is large enough for either.
            let v4 = unsafe withUnsafeBytes(of: &storage) { unsafe $0.loadUnaligned(as: sockaddr_in.self) }
            self.init(
                high: UInt64(UInt32(bigEndian: v4.sin_addr.s_addr)) << 32, low: 0, port: UInt16(bigEndian: v4.sin_port),
                isIPv6: false)
        case AF_INET6:
            // SAFETY: as above.
            let v6 = unsafe withUnsafeBytes(of: &storage) { unsafe $0.loadUnaligned(as: sockaddr_in6.self) }
            let words = unsafe withUnsafeBytes(of: v6.sin6_addr) {
                unsafe (
                    $0.loadUnaligned(as: UInt64.self).bigEndian,
                    $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self).bigEndian
                )
            }
            let port = UInt16(bigEndian: v6.sin6_port)
            if words.0 == 0, words.1 >> 32 == 0xffff {
                self.init(high: words.1 << 32, low: 0, port: port, isIPv6: false)
            } else {
                self.init(high: words.0, low: words.1, scope: v6.sin6_scope_id, port: port, isIPv6: true)
            }
        default:
            return nil
        }
    }

    /// Calls `body` with the address in the kernel's form, which is valid only during the call.
    func withKernelForm<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        if isIPv6 {
            var v6 = sockaddr_in6()
            v6.sin6_family = sa_family_t(AF_INET6)
            v6.sin6_port = port.bigEndian
            v6.sin6_scope_id = scope
            // SAFETY: an IPv6 address is sixteen bytes; both pointers are used inside their closures only.
            unsafe withUnsafeMutableBytes(of: &v6.sin6_addr) { bytes in
                unsafe bytes.storeBytes(of: high.bigEndian, as: UInt64.self)
                unsafe bytes.storeBytes(of: low.bigEndian, toByteOffset: 8, as: UInt64.self)
            }
            return unsafe withUnsafePointer(to: &v6) { v6 in
                unsafe v6.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    unsafe body($0, socklen_t(MemoryLayout<sockaddr_in6>.size))
                }
            }
        }
        var v4 = sockaddr_in()
        v4.sin_family = sa_family_t(AF_INET)
        v4.sin_port = port.bigEndian
        v4.sin_addr.s_addr = UInt32(high >> 32).bigEndian
        // SAFETY: the pointer is used inside the closure only.
        return unsafe withUnsafePointer(to: &v4) { v4 in
            unsafe v4.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }

    /// Address in the usual notation, without the port.
    public var host: String {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        if isIPv6 {
            var words = (high.bigEndian, low.bigEndian)
            // SAFETY: sixteen bytes of address, and room for the longest text.
            _ = unsafe inet_ntop(AF_INET6, &words, &text, socklen_t(text.count))
        } else {
            var word = UInt32(high >> 32).bigEndian
            // SAFETY: four bytes of address, and room for the longest text.
            _ = unsafe inet_ntop(AF_INET, &word, &text, socklen_t(text.count))
        }
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

extension SocketAddress: CustomStringConvertible {
    public var description: String { isIPv6 ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

extension SystemError {
    /// True if this machine does not have the address, or has no address of the same family.
    public var isAbsentFamily: Bool { code == EAFNOSUPPORT || code == EADDRNOTAVAIL }
}
