import Bytes
import Change
import Diagnostics
import Matching
import Policy

/// What the tables themselves say of rows that were decided on without PostgreSQL.
///
/// The table shows a row as it is, and not as it was when the change was decided on. So an answer counts against a
/// decision only once the log has come as far as the table had when it answered, without another change of that row; and
/// only if the row would be decided on in the same way then.
struct SecondOpinions {
    /// A decision that the table was asked about.
    struct Opinion {
        let policy: UInt32
        /// Which one that number was.
        let judged: UInt64
        let expected: Bool
        let table: UInt32
        /// The key's columns, and the row as it was told of.
        let key: [String]
        let relation: Relation
        let fingerprint: UInt64
        let row: [UInt8]
        /// The table said something else, and had come this far.
        var contradictedAt: LSN?
    }

    private var open: [UInt64: Opinion] = [:]
    private var last: UInt64 = 0

    var isEmpty: Bool { open.isEmpty }
    var isFull: Bool { open.count >= Limits.maximumSecondOpinions }

    mutating func add(_ opinion: Opinion) -> UInt64 {
        last += 1
        open[last] = opinion
        return last
    }

    /// Another change: what was asked about the same row says nothing of it any more.
    mutating func pass(_ change: borrowing Change, _ relation: Relation) throws(ByteError) {
        for (ticket, opinion) in open where opinion.table == relation.oid {
            if try SecondOpinions.mayConcern(opinion, change, relation) { open[ticket] = nil }
        }
    }

    private static func mayConcern(
        _ opinion: Opinion, _ change: borrowing Change, _ relation: Relation
    ) throws(ByteError) -> Bool {
        guard change.operation != .truncate, let here = RowColumns(opinion.key, in: relation),
            let there = RowColumns(opinion.key, in: opinion.relation), let id = try there.id(of: opinion.row.asTuple)
        else { return true }
        if let new = change.new, try here.id(of: new) == id { return true }
        if let old = change.old, try here.id(of: old) == id { return true }
        return false
    }

    /// What the table showed; nil where it could not be asked.
    mutating func take(_ ticket: UInt64, _ seen: SeenInTable?) {
        guard let opinion = open[ticket] else { return }
        guard let seen else {
            open[ticket] = nil
            return
        }
        Metrics.shared.shadowSamples.add()
        open[ticket] = nil
        guard seen.isVisible != opinion.expected else { return }
        open[ticket] = opinion
        open[ticket]?.contradictedAt = seen.position
    }

    /// The log has come to a transaction: contradictions that nothing came between.
    mutating func takeRipe(at position: LSN) -> [Opinion] {
        guard !open.isEmpty else { return [] }
        let ripe = open.filter { $0.value.contradictedAt.map { $0 <= position } ?? false }.sorted { $0.key < $1.key }
        for (ticket, _) in ripe { open[ticket] = nil }
        return ripe.map(\.value)
    }

    /// Changes were passed over unseen.
    mutating func forgetAll() { open.removeAll() }
}

extension Courier {
    /// Asks the table about one holder and the change's row.
    mutating func sample(_ change: borrowing Change, _ relation: Relation) throws(ByteError) {
        guard change.operation == .insert || change.operation == .update, !opinions.isFull,
            let number = policies.sampling.choose(relation.oid), let entry = policies.entries[number],
            let expected = try decision(entry, change), let new = change.new
        else { return }
        let key = entry.table.primaryKey.map { RowTexts.Wanted(entry.table.columns[$0]) }
        guard let texts = try RowTexts.texts(of: key, in: change, relation, .new),
            let sight = TableSight(entry.table, texts, entry.claimant)
        else { return }
        let ticket = opinions.add(
            SecondOpinions.Opinion(
                policy: number, judged: entry.judged.identity, expected: expected, table: relation.oid,
                key: key.map(\.name), relation: relation, fingerprint: change.relation, row: new.bytes.copied()))
        ask(sight, ticket)
    }

    /// Nil where it is not made here.
    private mutating func decision(_ entry: PolicyEntry, _ change: borrowing Change) throws(ByteError) -> Bool? {
        switch try index.verdict(of: entry.predicate, on: change) {
        case .yes: true
        case .no, .unknown, .notYes: false
        // PostgreSQL may find another order of evaluation, in which nothing fails.
        case .failed, .ask: nil
        }
    }

    /// The log has come to a transaction at this position.
    mutating func confirmContradictions(at position: LSN) throws(ByteError) {
        for opinion in opinions.takeRipe(at: position) {
            guard let entry = policies.entries[opinion.policy], entry.judged.identity == opinion.judged else {
                continue
            }
            let bytes = opinion.insertion
            var part = try TransactionPart(bytes.asBytes)
            guard let change = try part.next(), try decision(entry, change) == opinion.expected else { continue }
            contradicted.append(opinion.policy)
        }
    }
}

extension SecondOpinions.Opinion {
    /// The row, as if it was inserted.
    fileprivate var insertion: [UInt8] {
        var writer = ByteWriter(capacity: row.count + 128)
        TransactionCodec.begin(
            TransactionInfo(xid: 0, commitLSN: LSN(0), endLSN: LSN(0), commitTime: 0), firstIndex: 0, to: &writer)
        TransactionCodec.append(
            .insert, relation: fingerprint, oldImage: .none, old: RawSpan(), new: row.asBytes, to: &writer)
        TransactionCodec.finish(endLSN: LSN(0), changeCount: 1, in: &writer)
        return writer.copied()
    }
}
