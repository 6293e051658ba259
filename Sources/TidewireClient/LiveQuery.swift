import Observation

/// A table's rows, sorted, as a view shows them.
///
/// ```swift
/// @State private var notes = LiveQuery(tidewire, Note.self, where: \.owner == me, fetch: { try await api.notes() }) {
///     $0.text < $1.text
/// }
/// List(notes.rows) { … }.task { await notes.run() }
/// ```
@MainActor @Observable
public final class LiveQuery<Row: LiveRow> {
    public private(set) var rows: [Row] = []
    /// Nothing that was missed is still on its way.
    public private(set) var isCaughtUp = false
    /// What the server says is wrong; the latest of each kind.
    public private(set) var problems: [String: Problem] = [:]
    /// Why the rows may be wrong: without `fetch` the app has to fetch them and call `replace`.
    public private(set) var mustRefetch: RefetchReason?

    private let changes: LiveChanges<Row>
    private let areInOrder: @Sendable (Row, Row) -> Bool
    @ObservationIgnored private var byID: [Row.ID: Row] = [:]

    public init(
        _ tidewire: Tidewire, _ row: Row.Type, where filter: Filter<Row>? = nil, window: BatchWindow = .standard,
        snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil,
        sortedBy areInOrder: @escaping @Sendable (Row, Row) -> Bool
    ) {
        changes = tidewire.live(row, where: filter, window: window, snapshot: snapshot, fetch: fetch)
        self.areInOrder = areInOrder
    }

    /// Follows the table until its task is cancelled. It may be run again: then it begins with what there is.
    public func run() async {
        for await batch in changes { take(batch) }
        isCaughtUp = false
    }

    public func replace(_ rows: [Row]) {
        byID = Dictionary(rows.map { ($0.id, $0) }) { _, last in last }
        mustRefetch = nil
        sort()
    }

    func take(_ batch: Batch<Row>) {
        if let rows = batch.rows { replace(rows) }
        if let reason = batch.mustRefetch {
            mustRefetch = reason
            isCaughtUp = false
        }
        if batch.isCaughtUp { isCaughtUp = true }
        for problem in batch.problems { problems[problem.code] = problem }
        guard !batch.changes.isEmpty else { return }
        for change in batch.changes { byID[change.id] = change.row }
        sort()
    }

    private func sort() { rows = byID.values.sorted(by: areInOrder) }
}

extension Tidewire {
    /// How many rows each group has, kept by the rows' keys: likes by post, unread messages by conversation.
    public func count<Row: LiveRow, Group: Hashable & Sendable>(
        _ row: Row.Type, where filter: Filter<Row>? = nil, by group: @escaping @Sendable (Row) -> Group,
        window: BatchWindow = .standard, snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil
    ) -> LiveCounts<Row, Group> {
        let changes = live(row, where: filter, window: window, snapshot: snapshot, fetch: fetch)
        return LiveCounts(changes: changes, group: group)
    }
}

/// The counts after each batch that changes them.
public struct LiveCounts<Row: LiveRow, Group: Hashable & Sendable>: AsyncSequence, Sendable {
    let changes: LiveChanges<Row>
    let group: @Sendable (Row) -> Group

    public func makeAsyncIterator() -> Iterator { Iterator(changes: changes.makeAsyncIterator(), group: group) }

    public struct Iterator: AsyncIteratorProtocol {
        var changes: LiveChanges<Row>.Iterator
        let group: @Sendable (Row) -> Group
        private var counts = KeyedCounts<Group, Row.ID>()

        init(changes: LiveChanges<Row>.Iterator, group: @escaping @Sendable (Row) -> Group) {
            self.changes = changes
            self.group = group
        }

        public mutating func next() async -> KeyedCounts<Group, Row.ID>? {
            while let batch = await changes.next() {
                if let rows = batch.rows {
                    counts.removeAll()
                    for row in rows { counts.insert(row.id, in: group(row)) }
                }
                for change in batch.changes {
                    if let row = change.row { counts.insert(row.id, in: group(row)) } else { counts.remove(change.id) }
                }
                if batch.rows != nil || !batch.changes.isEmpty { return counts }
            }
            return nil
        }
    }
}
