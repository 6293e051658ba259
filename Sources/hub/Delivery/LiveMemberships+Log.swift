import Bytes
import Change
import Diagnostics
import EventLog

/// Part of the membership sets that reads the log: it applies transactions, and removes the effects of later ones from
/// PostgreSQL's answers.
extension LiveMemberships {
    /// Applies the effect of a log entry on the membership sets before the entry's rows are delivered. Policies use the
    /// memberships at the end of the transaction for all of its rows.
    mutating func apply(
        _ feed: borrowing LogFeed, _ entry: EventLogEntry, _ schemas: inout SchemaRegistry
    ) throws {
        var part = try TransactionPart(feed.payload)
        guard beginEntry(part.info) else { return }
        try applyAll(&part, schemas)
        guard entry.isContinued else { return }
        applyLaterParts()
        do {
            try applyLaterParts(feed, of: entry, &schemas)
        } catch {
            partsAreLost()
            throw error
        }
    }

    @_lifetime(part: copy part)
    private mutating func applyAll(_ part: inout TransactionPart, _ schemas: SchemaRegistry) throws(ByteError) {
        while let unknown = try apply(&part, schemas) { try note(unknown, schemas) }
    }

    private mutating func note(_ fingerprint: UInt64, _ schemas: SchemaRegistry) throws(ByteError) {
        let relation = try schemas.relation(of: fingerprint)
        noteRelation(fingerprint, relation, foreign: schemas.unsure(relation))
    }

    /// Applies the later parts of a transaction to the sets in advance. The pipeline reads these parts again to deliver
    /// their rows.
    private mutating func applyLaterParts(
        _ feed: borrowing LogFeed, of first: EventLogEntry, _ schemas: inout SchemaRegistry
    ) throws {
        var reader = try feed.reader(at: first)
        while try reader.next() {
            let entry = reader.entry
            if entry.kind == .relation { try schemas.learn(reader.payload) }
            guard entry.kind == .transaction, entry.segment != first.segment || entry.position != first.position else {
                continue
            }
            var part = try TransactionPart(reader.payload)
            try applyAll(&part, schemas)
            if !entry.isContinued { return }
        }
    }

    /// Removes the effects of transactions after the current one from PostgreSQL's answers, once the log has all
    /// transactions that an answer contains. Returns the membership sets that decisions can use now.
    ///
    /// - Parameter delaysOthers: true if the log has entries that the wait keeps from other channels.
    mutating func settleFills(
        _ feed: inout LogFeed?, coveredUpTo position: () -> LSN, delaysOthers: Bool, _ now: UInt64,
        _ schemas: inout SchemaRegistry
    ) -> [MembershipSet] {
        defer {
            measureAtHand()
            if !isUnwinding { endWatch() }
        }
        guard isUnwinding else { return [] }
        let covered = position()
        watchLog(coveredUpTo: covered, now, delaysOthers: delaysOthers)
        var isWhole = false
        if mayUnwind(coveredUpTo: covered), let taken = feed.take() {
            var isRefused = false
            do {
                isWhole = try unwind(taken, &schemas)
            } catch {
                isRefused = ReadingTrouble(error) == .transient
            }
            feed = consume taken
            // The hub tries again later, but not forever.
            if isRefused, !isTiredOfUnwinding(now) { return [] }
        }
        return unwound(coveredUpTo: covered, now, isLost: !isWhole)
    }

    /// Removes the effects of the log's later transactions from PostgreSQL's answers. Returns false if too much of the
    /// log would have to be read, or it has a gap.
    private mutating func unwind(_ feed: borrowing LogFeed, _ schemas: inout SchemaRegistry) throws -> Bool {
        beginUnwinding()
        var left = Limits.membershipUnwindBytes
        var isOfAppliedTransaction = progress.isAheadOfParts
        if let entry = feed.currentEntry {
            if entry.kind == .transaction, !progress.hasApplied, !progress.isAheadOfParts {
                var part = try TransactionPart(feed.payload)
                try unwindAll(&part, schemas)
            }
            if entry.kind == .transaction, !entry.isContinued { isOfAppliedTransaction = false }
        }
        var reader = feed.ahead()
        while try reader.next() {
            left -= reader.entry.header.byteCount
            guard left > 0, reader.entry.kind != .gap else { return false }
            if reader.entry.kind == .relation { try schemas.learn(reader.payload) }
            guard reader.entry.kind == .transaction else { continue }
            if !isOfAppliedTransaction {
                var part = try TransactionPart(reader.payload)
                try unwindAll(&part, schemas)
            } else if !reader.entry.isContinued {
                isOfAppliedTransaction = false
            }
        }
        return true
    }

    @_lifetime(part: copy part)
    private mutating func unwindAll(_ part: inout TransactionPart, _ schemas: SchemaRegistry) throws(ByteError) {
        while let unknown = try unwind(&part, schemas) { try note(unknown, schemas) }
    }
}
