import Bytes
import Change
import Diagnostics
import EventLog

/// Memberships as the log changes them: transactions are applied, and those ahead are taken out of answers.
extension LiveMemberships {
    /// Applies an entry's effect before its rows, because every holder is judged by the memberships as the whole
    /// transaction leaves them.
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

    /// Applies the later parts of a transaction. The parts are read again afterwards for their rows.
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

    /// Unwinds sets that PostgreSQL filled with more than the log has come to, once the log has all of it. The sets are
    /// then as they were at the current transaction. Returns the sets that are settled.
    mutating func settleFills(
        _ feed: inout LogFeed?, coveredUpTo position: () -> LSN, _ now: UInt64, _ schemas: inout SchemaRegistry
    ) -> [MembershipSet] {
        defer { measureAtHand() }
        guard isUnwinding else { return [] }
        let covered = position()
        var isWhole = false
        if mayUnwind(coveredUpTo: covered), let taken = feed.take() {
            var isRefused = false
            do {
                isWhole = try unwind(taken, &schemas)
            } catch {
                isRefused = ReadingTrouble(error) == .transient
            }
            feed = consume taken
            // The memberships are unwound again after a while, but not forever.
            if isRefused, !isTiredOfUnwinding(now) { return [] }
        }
        return unwound(coveredUpTo: covered, now, isLost: !isWhole)
    }

    /// Takes the effects of the log's later transactions out of the sets. False if the log ahead is too long or has a
    /// gap.
    private mutating func unwind(_ feed: borrowing LogFeed, _ schemas: inout SchemaRegistry) throws -> Bool {
        beginUnwinding()
        var left = Limits.membershipUnwindBytes
        var isOfAppliedTransaction = progress.isAheadOfParts
        if let entry = feed.atHand {
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
