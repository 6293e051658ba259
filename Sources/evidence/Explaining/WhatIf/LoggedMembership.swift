import Bytes
import Catalog
import Change
import EventLog
import History
import Policy

/// What the log by itself tells of a membership at a change, without what it is now: which keys there certainly were, and which
/// there certainly were not.
///
/// Rows from before the log, which nothing has touched since, are not in it. A key is known to be given where more rows gave it
/// than went again; it is known to be missing where there can be but one row that gives it, and that had gone, or had not
/// come yet; and once the table has been emptied all is known.
struct LoggedMembership {
    private struct Tally {
        /// Of the log's rows that give it, how many more had come than gone: at the change, and at the lowest.
        var atChange = 0
        var now = 0
        var lowest = 0

        /// As many rows as there were at least.
        var atLeast: Int { atChange - lowest }
    }

    /// One row at most gives a key: then whether there is one is known from the first that happens to it.
    private let isUnique: Bool
    private var tallies: [[UInt8]: Tally] = [:]
    private var rows = Tally()
    /// The table was emptied before the change.
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

    mutating func take(_ effect: PastMemberships.Effect.What, isBefore: Bool, hasKey: Bool) {
        switch effect {
        case .unreadable: isReadable = false
        case .truncate:
            // What lay below does not count any more, and behind the change nothing can be told of it.
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
        tally.now += change
        tally.lowest = min(tally.lowest, tally.now)
        if isBefore { tally.atChange = tally.now }
    }

    /// Keys that there certainly were.
    var given: MembershipKeys {
        let keys = tallies.filter { $0.value.atLeast > 0 }.keys.sorted { $0.lexicographicallyPrecedes($1) }
        return MembershipKeys(keys: isReadable ? keys : [], hasNull: false, hasRows: isReadable && rows.atLeast > 0)
    }

    /// Keys that there certainly were not, as if they were keys.
    var missing: MembershipKeys {
        let keys = tallies.filter { (isUnique || isWhole) && $0.value.atLeast <= 0 }.keys
        let isEmpty = rows.atLeast <= 0 && (isWhole || isUnique && rows.lowest < 0)
        return MembershipKeys(
            keys: isReadable ? keys.sorted { $0.lexicographicallyPrecedes($1) } : [], hasNull: false,
            hasRows: isReadable && (!keys.isEmpty || isEmpty))
    }

    /// All keys are known.
    var isKnown: Bool { isReadable && isWhole && !hasNull }
}

extension PastMemberships {
    /// What the log tells of each of the sets at a change; nil where it does not tell of all that happened.
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
