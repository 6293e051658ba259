/// Times as PostgreSQL counts them.
public enum PostgresMoment {
    /// Returns the microseconds since the beginning of 2000, from which PostgreSQL counts.
    public static func of(_ unixMicroseconds: Int64) -> Int64 { unixMicroseconds - 946_684_800_000_000 }
}
