/// Position in PostgreSQL's write-ahead log.
public struct LSN: RawRepresentable, Sendable, Hashable, Comparable {
    public var rawValue: UInt64

    @inlinable public init(rawValue: UInt64) { self.rawValue = rawValue }
    @inlinable public init(_ value: UInt64) { self.rawValue = value }

    public static let zero = LSN(0)

    @inlinable public static func < (left: LSN, right: LSN) -> Bool { left.rawValue < right.rawValue }

    /// Parses PostgreSQL's notation, e.g. `0/16B3748`.
    public init?(_ text: some StringProtocol) {
        let halves = text.split(separator: "/", omittingEmptySubsequences: false)
        guard halves.count == 2,
            let high = LSN.half(halves[0]), let low = LSN.half(halves[1])
        else { return nil }
        self.init(UInt64(high) << 32 | UInt64(low))
    }

    private static func half(_ text: some StringProtocol) -> UInt32? {
        guard (1...8).contains(text.utf8.count), text.allSatisfy(\.isHexDigit) else { return nil }
        return UInt32(text, radix: 16)
    }
}

extension LSN: CustomStringConvertible {
    public var description: String {
        String(rawValue >> 32, radix: 16, uppercase: true) + "/"
            + String(rawValue & 0xffff_ffff, radix: 16, uppercase: true)
    }
}

/// Time scale of PostgreSQL: microseconds since 2000-01-01, UTC.
public enum PostgresTime {
    /// Microseconds from 1970 to 2000.
    public static let epochOffset: Int64 = 946_684_800_000_000

    public static func unixMicroseconds(fromPostgres time: Int64) -> Int64 { time &+ epochOffset }
    public static func postgres(fromUnixMicroseconds time: Int64) -> Int64 { time &- epochOffset }
}
