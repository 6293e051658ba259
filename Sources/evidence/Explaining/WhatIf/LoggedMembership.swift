import Bytes
import Catalog
import Change
import EventLog
import History
import Policy

/// Keys that a membership certainly had, or certainly lacked, at a change. Only the log is used, not the present keys.
///
/// The log lacks older rows that no change has touched since. A key was certainly given if the log has more inserts
/// than deletes of rows that give it. A key was certainly missing if at most one row can give it, and this row was
/// deleted before the change or inserted after it. After a truncate of the table, all keys are known.
struct LoggedMembership {
    private struct Tally {
        /// Number of inserted rows minus number of deleted rows in the log, at the change. `now` is the same at the
        /// log's end, `lowest` the minimum over the log.
        var atChange = 0
        var now = 0
        var lowest = 0

        /// Minimum number of rows that existed at the change.
        var atLeast: Int { atChange - lowest }
    }

    /// True if at most one row gives a key. The row's first change in the log then shows if the row existed before it.
    private let isUnique: Bool
    private var tallies: [[UInt8]: Tally] = [:]
    private var rows = Tally()
    /// True if the table was truncated before the change, so that the log has all rows since.
    private var isWhole = false
    private var hasNull = false
    private var isReadable = true

    init(_ set: Ruling.Members) {
        let key = set.held.membership.keySlot
        let fixed = set.held.membership.fixedSlots
        let primaryKey = set.table?.primaryKey ?? []
        isUnique =
            !primaryKey.isEmpty && (key.map(primaryKey.contains) ?? true)
            && primaryKey.allSatisfy { $0 == key || fixed.contains($0) }
    }

    /// Applies one effect of a logged change on the membership; `isBefore` is true if it counts at the change in
    /// question.
    mutating func take(_ effect: PastMemberships.Effect.What, isBefore: Bool, hasKey: Bool) {
        switch effect {
        case .unreadable: isReadable = false
        case .truncate:
            // Earlier counts no longer matter. A truncate after the change shows nothing about the rows at the change.
            guard isBefore else { return }
            (tallies, rows, isWhole, hasNull) = ([:], Tally(), true, false)
        case .row(let key, let change):
            Self.count(change, in: &rows, isBefore)
            guard hasKey else { return }
            guard let key else {
                hasNull = true
                return
            }
            Self.count(change, in: &tallies[key, default: Tally()], isBefore)
        }
    }

    private static func count(_ change: Int, in tally: inout Tally, _ isBefore: Bool) {
        assert(abs(change) == 1, "a change brings or takes one row")
        tally.now += change
        tally.lowest = min(tally.lowest, tally.now)
        if isBefore { tally.atChange = tally.now }
        assert(tally.atLeast >= 0, "the lowest point is no higher than the count at the change")
    }

    /// Keys that the membership certainly had at the change.
    var given: MembershipKeys {
        let keys = tallies.filter { $0.value.atLeast > 0 }.keys.sorted { $0.lexicographicallyPrecedes($1) }
        return MembershipKeys(keys: isReadable ? keys : [], hasNull: false, hasRows: isReadable && rows.atLeast > 0)
    }

    /// Keys that the membership certainly lacked at the change, in the form of a set of keys.
    var missing: MembershipKeys {
        let keys = tallies.filter { (isUnique || isWhole) && $0.value.atLeast <= 0 }.keys
        let isEmpty = rows.atLeast <= 0 && (isWhole || isUnique && rows.lowest < 0)
        return MembershipKeys(
            keys: isReadable ? keys.sorted { $0.lexicographicallyPrecedes($1) } : [], hasNull: false,
            hasRows: isReadable && (!keys.isEmpty || isEmpty))
    }

    /// True if all keys of the membership at the change are known.
    var isKnown: Bool { isReadable && isWhole && !hasNull }
}

extension PastMemberships {
    /// Returns, for each membership set, the keys that the log shows at a change; nil if the log has a gap.
    mutating func logged(by log: HistoryLog, at change: RecordedChange) throws -> [LoggedMembership]? {
        var found = sets.map(LoggedMembership.init)
        let names = tables.map { RowKey.table(schema: $0.schema, name: $0.name) }
        var reader = try EventLogReader(directory: log.directory, from: .oldest, matchingAnyOf: names)
        while try reader.next() {
            switch reader.entry.kind {
            case .relation: try learn(reader.payload)
            case .gap: return nil
            case .transaction:
                let isBefore = reader.entry.offset <= change.offset
                for effect in try effects(of: reader.payload) {
                    found[effect.set].take(
                        effect.what, isBefore: isBefore || effect.xid == change.transaction.xid,
                        hasKey: sets[effect.set].held.membership.keySlot != nil)
                }
            default: break
            }
        }
        return found
    }
}
