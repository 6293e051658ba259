import Bytes

/// Value of `phx_ref`: unique identifier of one tracked presence. Later ones are greater, as long as the clock does not
/// go back.
///
/// A ref consists of 48 bits of milliseconds, a sequence of 16 bits, the loop's number, and a random number drawn when
/// the loop started. So different loops or runs never make the same ref.
public struct PresenceRef: Sendable, Hashable, Comparable, BitwiseCopyable {
    let time: UInt64
    let origin: UInt32

    public static func < (left: PresenceRef, right: PresenceRef) -> Bool {
        left.time == right.time ? left.origin < right.origin : left.time < right.time
    }

    static let textBytes = 16
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)

    /// Appends the ref as 16 digits of base64url (RFC 4648 §5).
    public func append(to writer: inout ByteWriter) {
        for shift in stride(from: 58, through: 4, by: -6) { appendDigit(time >> UInt64(shift), to: &writer) }
        appendDigit((time & 15) << 2 | UInt64(origin >> 30), to: &writer)
        for shift in stride(from: 24, through: 0, by: -6) { appendDigit(UInt64(origin >> UInt32(shift)), to: &writer) }
    }

    private func appendDigit(_ bits: UInt64, to writer: inout ByteWriter) {
        writer.append(Self.alphabet[Int(bits & 63)])
    }

    public var text: String {
        var writer = ByteWriter(capacity: Self.textBytes)
        append(to: &writer)
        return writer.bytes.text
    }
}

/// Generator of presence refs for one loop.
public struct PresenceRefs: ~Copyable, Sendable {
    private var last: UInt64 = 0
    private let origin: UInt32

    public init(loop: UInt16, salt: UInt16 = .random(in: .min ... .max)) {
        origin = UInt32(loop) << 16 | UInt32(salt)
    }

    /// Returns a ref that is greater than all earlier ones of this generator. `milliseconds` is the Unix time; if the
    /// clock stops or goes back, refs continue from the last one.
    public mutating func next(at milliseconds: UInt64) -> PresenceRef {
        last = max(last + 1, (milliseconds & 0xffff_ffff_ffff) << 16)
        return PresenceRef(time: last, origin: origin)
    }
}
