import Catalog
import Diagnostics
import Policy

/// Keys of a membership set that came or went since the policies that use the set were last evaluated.
struct TouchedKeys {
    /// Texts of the keys; nil if they are not known or too many to list.
    private(set) var keys: Set<[UInt8]>? = []

    var isEmpty: Bool { keys?.isEmpty ?? false }

    /// Adds a key. NULL equals no value, so it touches no row that a lookup finds.
    mutating func add(_ key: [UInt8]?) {
        guard let key, let keys else { return }
        if keys.count >= Limits.maximumTouchedKeys { return self.keys = nil }
        self.keys?.insert(key)
    }

    /// Records that any key may have come or gone.
    mutating func addAll() { keys = nil }
}

/// Keys that came or went with the newest transaction that touched a membership set.
struct NewestTouchedKeys {
    private var transaction: UInt64?
    private var keys = TouchedKeys()

    /// Returns the keys that the transaction with this commit position touched.
    func touched(by transaction: UInt64) -> TouchedKeys {
        self.transaction == transaction ? keys : TouchedKeys()
    }

    mutating func add(_ key: [UInt8]?, by transaction: UInt64) {
        begin(transaction)
        keys.add(key)
    }

    mutating func addAll(by transaction: UInt64) {
        begin(transaction)
        keys.addAll()
    }

    private mutating func begin(_ transaction: UInt64) {
        if self.transaction != transaction { keys = TouchedKeys() }
        self.transaction = transaction
    }
}

/// Rows of a table that may have come into the sight of a policy's holder, or have left it, although the rows did not
/// change.
public enum TouchedRows: Equatable, Sendable {
    /// Rows with one of these values (PostgreSQL's texts) in the column with this slot.
    case with(slot: Int, values: Set<[UInt8]>)
    case all

    /// Returns the rows of both.
    public func union(_ other: TouchedRows) -> TouchedRows {
        guard case .with(let slot, let values) = self, case .with(slot, let others) = other,
            values.count + others.count <= Limits.maximumTouchedKeys
        else { return .all }
        return .with(slot: slot, values: values.union(others))
    }
}

extension ActivePolicy {
    /// Rows whose verdict may have changed since the policy was last evaluated.
    public var touchedRows: TouchedRows { rows(by: \.touched) ?? .all }

    /// True if keys came or went since the policy was last evaluated.
    public var isTouched: Bool { sets.contains { !$0.touched.isEmpty } }

    /// Returns the rows whose verdict may have changed with the keys; nil if there are no keys.
    func rows(by keys: (MembershipSet) -> TouchedKeys) -> TouchedRows? {
        var touched: TouchedRows?
        for set in sets {
            let keys = keys(set)
            if keys.isEmpty { continue }
            guard let keys = keys.keys, let slot = residual.term.column(lookedUpIn: set.held.membership)
            else { return .all }
            let rows = TouchedRows.with(slot: slot, values: keys)
            touched = touched?.union(rows) ?? rows
        }
        return touched
    }
}
