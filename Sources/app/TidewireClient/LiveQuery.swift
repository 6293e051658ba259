import Observation

/// A table's rows, sorted, as a view shows them.
///
/// ```swift
/// @MainActor final class NotesModel {
///     let notes: LiveQuery<Note>
///
///     init(_ tidewire: Tidewire, me: UUID) {
///         notes = LiveQuery(tidewire, Note.self, where: \.ownerID == me) { $0.text < $1.text }
///     }
///
///     func run() async { await notes.run() }      // in the view's `.task`
/// }
/// ```
@MainActor @Observable
public final class LiveQuery<Row: LiveRow> {
    public private(set) var rows: [Row] = []
    /// Nothing that was missed is still on its way.
    public private(set) var isCaughtUp = false
    /// What the server says is wrong; the latest of each kind.
    public private(set) var problems: [String: Problem] = [:]
    /// Why the rows may be wrong: where the server does not tell them, and without `fetch`, the app has to fetch them and
    /// call `replace`.
    public private(set) var mustRefetch: RefetchReason?
    /// There have been rows, if only none.
    public private(set) var hasBegun = false

    private let changes: LiveChanges<Row>
    private let areInOrder: @Sendable (Row, Row) -> Bool
    @ObservationIgnored private var kept: OptimisticRows<Row>

    /// - Parameter origin: what a row says of the write that it comes from, for ``optimistic(_:origin:send:)``: by default its
    ///   id, where the app chooses that.
    public init(
        _ tidewire: Tidewire, _ row: Row.Type, where filter: Filter<Row>? = nil, window: BatchWindow = .standard,
        snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil,
        origin: @escaping @Sendable (Row) -> String? = { "\($0.id)" },
        sortedBy areInOrder: @escaping @Sendable (Row, Row) -> Bool
    ) {
        changes = tidewire.live(row, where: filter, window: window, snapshot: snapshot, fetch: fetch)
        kept = OptimisticRows(origin: origin)
        self.areInOrder = areInOrder
    }

    /// Follows the table until its task is cancelled. It may be run again: then it begins with what there is.
    public func run() async {
        for await batch in changes { take(batch) }
        isCaughtUp = false
    }

    public func replace(_ rows: [Row]) {
        kept.replaceAll(rows)
        mustRefetch = nil
        hasBegun = true
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
        for change in batch.changes { kept.hear(change) }
        sort()
    }

    private func sort() { rows = kept.all.sorted(by: areInOrder) }

    // MARK: Writing

    /// Shows a row at once, sends it, and takes it back where that fails. Whichever comes first, the answer or the change
    /// itself, there is one row in the end.
    ///
    /// - Parameters:
    ///   - origin: by which the change is known when it comes.
    ///   - send: writes it, and returns the row as it is stored; nil where the answer does not say.
    public func optimistic(
        _ row: Row, origin: String, send: () async throws -> Row?
    ) async throws {
        write(row, origin: origin)
        do {
            succeeded(origin, try await send() ?? row)
        } catch {
            failed(origin)
            throw error
        }
    }

    /// The same for writes that wait for the network: shown at once, until `succeeded` or `failed` is called.
    public func write(_ row: Row, origin: String) {
        kept.write(row, origin: origin)
        sort()
    }

    public func succeeded(_ origin: String, _ row: Row) {
        kept.succeeded(origin, row)
        sort()
    }

    /// The server has taken it as it was written. Other queries' origins change nothing, so each of several can be told.
    public func succeeded(_ origin: String) {
        kept.succeeded(origin)
        sort()
    }

    public func failed(_ origin: String) {
        kept.failed(origin)
        sort()
    }
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
