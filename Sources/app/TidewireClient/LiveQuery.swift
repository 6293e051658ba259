import Observation

/// Sorted rows of a table, for a view.
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
    /// True if all missed changes have been delivered.
    public private(set) var isCaughtUp = false
    /// Problems reported by the server; the latest of each code.
    public private(set) var problems: [String: TidewireProblem] = [:]
    /// Reason why the rows may be wrong. Set if the server does not send the rows and there is no `fetch`. The app must
    /// then fetch the rows and call `replace`.
    public private(set) var mustRefetch: RefetchReason?
    /// True once the existing rows have been loaded, even if there are none.
    public private(set) var hasBegun = false

    private let changes: LiveChanges<Row>
    private let areInOrder: @Sendable (Row, Row) -> Bool
    @ObservationIgnored private var kept: OptimisticRows<Row>

    /// Creates a query. It follows the table while ``run()`` runs.
    ///
    /// - Parameters:
    ///   - tidewire: client that the query uses.
    ///   - row: type of the rows.
    ///   - filter: condition on the rows; the server evaluates it.
    ///   - window: rules for gathering changes into batches.
    ///   - snapshot: true to ask the server for the existing rows. The default is true if there is no `fetch`.
    ///   - fetch: fetches the existing rows, first and whenever changes could not be delivered.
    ///   - origin: returns the origin of the write that made a row, for ``optimistic(_:origin:send:)``. The default is
    ///     the row's id, which works if the app chooses the ids.
    ///   - areInOrder: returns true if the first row comes before the second one.
    public init(
        _ tidewire: Tidewire, _ row: Row.Type, where filter: LiveFilter<Row>? = nil, window: BatchWindow = .standard,
        snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil,
        origin: @escaping @Sendable (Row) -> String? = { "\($0.id)" },
        sortedBy areInOrder: @escaping @Sendable (Row, Row) -> Bool
    ) {
        changes = tidewire.live(row, where: filter, window: window, snapshot: snapshot, fetch: fetch)
        kept = OptimisticRows(origin: origin)
        self.areInOrder = areInOrder
    }

    /// Follows the table until its task is cancelled. A second call begins with the existing rows.
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

    func take(_ batch: LiveBatch<Row>) {
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

    /// Shows a row at once, sends it, and removes it if sending fails. In the end there is one row, whether the answer
    /// or the change arrives first.
    ///
    /// - Parameters:
    ///   - row: row to show.
    ///   - origin: value by which the arriving change is recognized.
    ///   - send: writes the row and returns it as stored; nil if the answer does not contain it.
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

    /// Shows a row at once for a write that waits for the network, until `succeeded` or `failed` is called.
    public func write(_ row: Row, origin: String) {
        kept.write(row, origin: origin)
        sort()
    }

    public func succeeded(_ origin: String, _ row: Row) {
        kept.succeeded(origin, row)
        sort()
    }

    /// Records that the server accepted a row as written. Origins of other queries have no effect, so the app may call
    /// this on several queries.
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
    /// Returns the number of rows in each group, counted by row key: likes by post, or unread messages by conversation.
    public func count<Row: LiveRow, Group: Hashable & Sendable>(
        _ row: Row.Type, where filter: LiveFilter<Row>? = nil, by group: @escaping @Sendable (Row) -> Group,
        window: BatchWindow = .standard, snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil
    ) -> LiveCounts<Row, Group> {
        let changes = live(row, where: filter, window: window, snapshot: snapshot, fetch: fetch)
        return LiveCounts(changes: changes, group: group)
    }
}

/// The sequence of the counts after each batch that changes them.
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
