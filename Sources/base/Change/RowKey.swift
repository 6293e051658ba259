import Bytes

/// Hashes of keys that segments record. By them, a search can tell that a segment has no version of a row. A collision
/// only causes a needless search and never hides a row.
public enum RowKey {
    /// Returns the key of all changes of a table.
    public static func table(schema: String, name: String) -> UInt64 {
        var hash = KeyHash(seed: 1)
        hash.combine(text: schema)
        hash.combine(text: name)
        return hash.value
    }

    /// Returns the key of a table's changes if its rows cannot be identified, because it has neither a primary key nor
    /// an identity index.
    public static func unkeyed(table: UInt64) -> UInt64 {
        var hash = KeyHash(seed: 2)
        hash.combine(table)
        return hash.value
    }

    /// Returns the key of every part of the transactions with this number. Segments record this key if they have at
    /// least `scheme` 1.
    public static func transaction(xid: UInt32) -> UInt64 {
        var hash = KeyHash(seed: 4)
        hash.combine(UInt64(xid))
        return hash.value
    }

    /// Key of every ledger entry.
    public static let ledger = ledger(of: 0, [])
    /// Returns the key of the ledger entries of one socket.
    public static func ledger(session: UInt64) -> UInt64 {
        var hash = KeyHash(seed: 5)
        hash.combine(1)
        hash.combine(session)
        return hash.value
    }
    /// Returns the key of the ledger entries of one user.
    public static func ledger(subject: [UInt8]) -> UInt64 { ledger(of: 2, subject) }
    /// Key of the ledger entries that state that notes are missing.
    public static let missed = ledger(of: 5, [])

    /// Key of every entry with individually recorded deliveries.
    public static let deliveries = ledger(of: 3, [])
    /// Returns the key of the entries with recorded deliveries of changes in this region of the log.
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

    /// Key of every catalog record and every catalog mark.
    public static let catalog = KeyHash(seed: 6).value

    /// Key of every operator's mark.
    public static let marks = KeyHash(seed: 7).value

    /// Key of every entry with rows that were read from the database.
    public static let kept = KeyHash(seed: 8).value
    /// Returns the key of the entries with rows of this table that were read from the database.
    public static func kept(table: UInt64) -> UInt64 {
        var hash = KeyHash(seed: 8)
        hash.combine(table)
        return hash.value
    }

    /// Current version of the keys that segments record for transactions. Each segment stores the version with which it
    /// was written. A segment of a lower version may contain transactions that its keys do not list.
    public static let scheme: UInt32 = 1

    /// Returns the beginning of the key of one row. The caller adds the text of each key column, in column order, then
    /// reads `value`.
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
