/// Conversion of times to PostgreSQL's scale, which begins in 2000.
public enum PostgresMoment {
    /// Returns the microseconds since the beginning of 2000, UTC, from microseconds since 1970.
    public static func of(_ unixMicroseconds: Int64) -> Int64 { unixMicroseconds - 946_684_800_000_000 }
}
