import Bytes

/// Hashes by which a segment can say "no version of this row is here". They may collide, which costs a look; they
/// never miss.
public enum RowKey {
    /// Every change of the table, whatever the row.
    public static func table(schema: String, name: String) -> UInt64 {
        var hash = KeyHash(seed: 1)
        hash.combine(text: schema)
        hash.combine(text: name)
        return hash.value
    }

    /// The table had changes whose rows could not be told apart: it had neither primary key nor identity index.
    public static func unkeyed(table: UInt64) -> UInt64 {
        var hash = KeyHash(seed: 2)
        hash.combine(table)
        return hash.value
    }

    /// Every part of the transactions of this number. Noted since `scheme` 1.
    public static func transaction(xid: UInt32) -> UInt64 {
        var hash = KeyHash(seed: 4)
        hash.combine(UInt64(xid))
        return hash.value
    }

    /// Every entry of the ledger …
    public static let ledger = ledger(of: 0, [])
    /// … those of a socket …
    public static func ledger(session: UInt64) -> UInt64 {
        var hash = KeyHash(seed: 5)
        hash.combine(1)
        hash.combine(session)
        return hash.value
    }
    /// … and those of a user.
    public static func ledger(subject: [UInt8]) -> UInt64 { ledger(of: 2, subject) }
    /// That notes of the ledger are missing.
    public static let missed = ledger(of: 5, [])

    /// Deliveries that are recorded one by one: every entry that has some …
    public static let deliveries = ledger(of: 3, [])
    /// … and those that have some of changes in this region of the log.
    public static func deliveries(region: UInt64) -> UInt64 {
        var hash = KeyHash(seed: 5)
        hash.combine(4)
        hash.combine(region)
        return hash.value
    }

    private static func ledger(of what: UInt64, _ text: [UInt8]) -> UInt64 {
        var hash = KeyHash(seed: 5)
        hash.combine(what)
        // SAFETY: any byte is a valid UInt8; the array outlives the span.
        unsafe hash.combine(text.span.bytes)
        return hash.value
    }

    /// Every record of the catalog, and every mark of it.
    public static let catalog = KeyHash(seed: 6).value

    /// Every mark of an operator.
    public static let marks = KeyHash(seed: 7).value

    /// Rows that were read from the database: every entry that has some …
    public static let kept = KeyHash(seed: 8).value
    /// … and those that have some of this table.
    public static func kept(table: UInt64) -> UInt64 {
        var hash = KeyHash(seed: 8)
        hash.combine(table)
        return hash.value
    }

    /// What is noted of transactions, as a number that segments keep: a segment of a lower one may have what it does not
    /// know of.
    public static let scheme: UInt32 = 1

    /// One row: begin with this, then combine the text of each key column in column order, then take `value`.
    @inlinable
    public static func row(table: UInt64) -> KeyHash {
        var hash = KeyHash(seed: 3)
        hash.combine(table)
        return hash
    }

    public static func row(table: UInt64, key: [String]) -> UInt64 {
        var hash = row(table: table)
        for value in key { hash.combine(text: value) }
        return hash.value
    }
}

extension KeyHash {
    public mutating func combine(text: String) {
        let bytes = Array(text.utf8)
        // SAFETY: any byte is a valid UInt8; the array outlives the span.
        unsafe combine(bytes.span.bytes)
    }
}
