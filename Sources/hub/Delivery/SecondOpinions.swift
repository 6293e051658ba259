import Bytes
import Catalog
import Change
import Diagnostics
import Judging
import Matching
import Policy

/// Checks of the hub's policy decisions against the rows that PostgreSQL shows.
///
/// PostgreSQL shows a row as it is now, and not as it was when the hub decided. So an answer contradicts a decision
/// only under two conditions. The log must have reached the position of the answer without another change of the row.
/// And the hub must still decide in the same way.
struct SecondOpinions {
    /// Decision of the hub, if a holder sees a row, that is being checked.
    struct Opinion {
        let policy: UInt32
        /// Identity of the policy when the hub decided. `policy` is only its number, which a later policy may reuse.
        let judged: UInt64
        /// True if the hub decided that the holder sees the row.
        let expected: Bool
        /// Identity of the row that the decision is about.
        let id: RowID
        /// Fingerprint of the row's schema in the change.
        let fingerprint: UInt64
        /// Image of the row in the change.
        let row: [UInt8]
        /// WAL position at which PostgreSQL contradicted the decision; nil if it has not.
        fileprivate(set) var contradictedAt: LSN?
    }

    /// Rows of one table that are being checked. There are few, so a linear search is enough.
    private struct Watched {
        let table: UInt32
        let key: [String]
        /// Key columns of the table in the schema of the last change; nil if that schema lacks one.
        var columns: RowColumns?
        var fingerprint: UInt64 = 0
        var rows: [(hash: UInt64, ticket: UInt64)] = []
    }

    private var open: [UInt64: Opinion] = [:]
    private var watched: [Watched] = []
    private var contradicted: Set<UInt64> = []
    private var last: UInt64 = 0
    /// Policies whose contradiction was confirmed since the last `takeConfirmed`.
    private var confirmed: [UInt32] = []
    private let samples: Counter

    /// Creates a record without checks.
    ///
    /// - Parameter samples: counter of the answers.
    init(_ samples: Counter) { self.samples = samples }

    var isEmpty: Bool { watched.isEmpty }
    var isFull: Bool { open.count >= Limits.maximumSecondOpinions }

    /// Adds a decision and returns the ticket for the question to PostgreSQL. `key` names the columns of the table's
    /// primary key.
    mutating func add(_ opinion: Opinion, key: [String]) -> UInt64 {
        let table = opinion.id.table
        if let place = place(of: table), watched[place].key != key { forget(at: place) }
        last += 1
        open[last] = opinion
        let place = place(of: table) ?? watched.endIndex
        if place == watched.endIndex { watched.append(Watched(table: table, key: key)) }
        watched[place].rows.append((opinion.id.hash, last))
        return last
    }

    private func place(of table: UInt32) -> Int? {
        for place in watched.indices where watched[place].table == table { return place }
        return nil
    }

    /// Drops open checks of the row that a change changes, because their answers no longer apply.
    mutating func pass(_ change: borrowing Change, _ relation: Relation) throws(ByteError) {
        guard let place = place(of: relation.oid) else { return }
        if watched[place].fingerprint != change.relation {
            watched[place].fingerprint = change.relation
            watched[place].columns = RowColumns(watched[place].key, in: relation)
        }
        guard watched[place].columns != nil, change.operation != .truncate else { return forget(at: place) }
        let new = if let row = change.new { try watched[place].columns?.id(of: row) } else { RowID?.none }
        let old = if let row = change.old { try watched[place].columns?.id(of: row) } else { RowID?.none }
        if new != nil || old != nil { forget(new, old, at: place) }
    }

    private mutating func forget(_ new: RowID?, _ old: RowID?, at place: Int) {
        let isConcerned = watched[place].rows.contains { $0.hash == new?.hash || $0.hash == old?.hash }
        guard isConcerned else { return }
        for row in watched[place].rows where row.hash == new?.hash || row.hash == old?.hash { close(row.ticket) }
    }

    private mutating func forget(at place: Int) {
        for row in watched[place].rows { close(row.ticket) }
    }

    private mutating func close(_ ticket: UInt64) {
        guard let opinion = open.removeValue(forKey: ticket), let place = place(of: opinion.id.table) else { return }
        contradicted.remove(ticket)
        watched[place].rows.removeAll { $0.ticket == ticket }
        if watched[place].rows.isEmpty { watched.remove(at: place) }
    }

    /// Accepts PostgreSQL's answer to the check with this ticket; nil if PostgreSQL could not be asked.
    mutating func take(_ ticket: UInt64, _ seen: RowVisibilityAnswer?) {
        guard let opinion = open[ticket] else { return }
        guard let seen else { return close(ticket) }
        samples.add()
        guard seen.isVisible != opinion.expected else { return close(ticket) }
        open[ticket]?.contradictedAt = seen.position
        contradicted.insert(ticket)
    }

    /// Removes and returns the contradictions whose position the log has now reached without a change of their row.
    mutating func takeReachedContradictions(at position: LSN) -> [Opinion] {
        if contradicted.isEmpty { return [] }
        var ripe: [Opinion] = []
        for ticket in contradicted.sorted() {
            guard let opinion = open[ticket], let at = opinion.contradictedAt, at <= position else { continue }
            ripe.append(opinion)
            close(ticket)
        }
        return ripe
    }

    /// Drops all checks, because the loop did not read some changes.
    mutating func forgetAll() {
        if isEmpty { return }
        open.removeAll()
        watched.removeAll()
        contradicted.removeAll()
    }
}

extension SecondOpinions {
    /// Asks PostgreSQL if a holder sees the row of the change, to check the hub's own decision.
    mutating func sample(
        _ change: borrowing Change, _ relation: Relation, _ bindings: inout PlacedBindings,
        _ asked: inout AskedQuestions
    ) throws(ByteError) {
        guard change.operation == .insert || change.operation == .update, !isFull,
            let number = bindings.policies.sampling.choose(relation.oid),
            let entry = bindings.policies.entries[number],
            let expected = try Self.decision(entry, change, &bindings.index), let new = change.new
        else { return }
        let key = entry.table.primaryKey.map { RowTexts.Wanted(entry.table.columns[$0]) }
        let names = key.map(\.name)
        guard let id = try RowColumns(names, in: relation)?.id(of: new),
            let texts = try RowTexts.texts(of: key, in: change, relation, .new),
            let sight = RowVisibilityQuestion(entry.table, texts, entry.subject)
        else { return }
        let ticket = add(
            Opinion(
                policy: number, judged: entry.judged.identity, expected: expected, id: id,
                fingerprint: change.relation, row: new.bytes.copied()), key: names)
        asked.add(sight, ticket)
    }

    /// Returns the hub's decision if the holder sees the row of the change; nil if the hub cannot decide alone.
    private static func decision(
        _ entry: PolicyEntry, _ change: borrowing Change, _ index: inout PredicateIndex
    ) throws(ByteError) -> Bool? {
        switch try index.verdict(of: entry.predicate, on: change) {
        case .yes: true
        case .no, .unknown, .notYes: false
        // PostgreSQL may evaluate the terms in another order, in which none fails.
        case .failed, .ask: nil
        }
    }

    /// Confirms contradictions that the log has reached at this position, if the hub still decides in the same way.
    mutating func confirm(at position: LSN, _ bindings: inout PlacedBindings) throws(ByteError) {
        for opinion in takeReachedContradictions(at: position) {
            guard let entry = bindings.policies.entries[opinion.policy], entry.judged.identity == opinion.judged else {
                continue
            }
            let bytes = opinion.insertion
            var part = try TransactionPart(bytes.asBytes)
            guard let change = try part.next(),
                try Self.decision(entry, change, &bindings.index) == opinion.expected
            else { continue }
            confirmed.append(opinion.policy)
        }
    }

    /// Removes and returns the numbers of the policies with a confirmed contradiction.
    mutating func takeConfirmed() -> [UInt32] {
        defer { confirmed = [] }
        return confirmed
    }
}

extension SecondOpinions.Opinion {
    /// Part of a transaction that inserts the checked row, so that the policy can be evaluated on it.
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
