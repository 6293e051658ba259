import Observation

/// Sorted rows of a table, for a view.
///
/// ```swift
/// @MainActor final class NotesModel {
///     let notes: LiveQuery<Note>
///
///     init(_ tidewire: Tidewire, me: UUID) {
///         notes = LiveQuery(of: Note.self, from: tidewire, where: \.ownerID == me) { $0.text < $1.text }
///     }
///
///     func run() async { await notes.run() }      // in the view's `.task`
/// }
/// ```
@MainActor @Observable
public final class LiveQuery<Row: LiveRow> {
    /// Rows in order, with the rows of pending writes.
    public private(set) var rows: [Row] = []
    /// True if all missed changes have been delivered.
    public private(set) var isCaughtUp = false
    /// Problems reported by the server; the latest of each code.
    public private(set) var problems: [String: TidewireProblem] = [:]
    /// Reason why the rows may be wrong. Set if the server does not send the rows and there is no `fetch`. The app must
    /// then fetch the rows and call ``replaceRows(with:)``.
    public private(set) var refetchReason: RefetchReason?
    /// True once the existing rows have been loaded, even if there are none.
    public private(set) var hasBegun = false

    private let changes: LiveChanges<Row>
    private let areInOrder: @Sendable (Row, Row) -> Bool
    @ObservationIgnored private var kept: OptimisticRows<Row>

    /// Creates a query. It follows the table while ``run()`` runs.
    ///
    /// - Parameters:
    ///   - row: type of the rows.
    ///   - tidewire: client that the query uses.
    ///   - filter: condition on the rows; the server evaluates it.
    ///   - window: rules for gathering changes into batches.
    ///   - snapshot: true to ask the server for the existing rows. The default is true if there is no `fetch`.
    ///   - fetch: fetches the existing rows, first and whenever changes could not be delivered.
    ///   - origin: returns the origin of the write that made a row, for ``write(_:origin:send:)``. The default is the
    ///     row's id, which works if the app chooses the ids.
    ///   - areInOrder: returns true if the first row comes before the second one.
    public init(
        of row: Row.Type, from tidewire: Tidewire, where filter: LiveFilter<Row>? = nil,
        window: BatchWindow = .standard, snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil,
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

    /// Replaces the rows with those that the app has fetched. The rows of pending writes remain.
    public func replaceRows(with fetched: [Row]) {
        kept.replaceAll(with: fetched)
        refetchReason = nil
        hasBegun = true
        sort()
    }

    func take(_ batch: LiveBatch<Row>) {
        if let rows = batch.rows { replaceRows(with: rows) }
        if let reason = batch.refetchReason {
            refetchReason = reason
            isCaughtUp = false
        }
        if batch.isCaughtUp { isCaughtUp = true }
        for problem in batch.problems { problems[problem.code] = problem }
        guard !batch.changes.isEmpty else { return }
        for change in batch.changes { kept.apply(change) }
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
    public func write(
        _ row: Row, origin: String, send: () async throws -> Row?
    ) async throws {
        write(row, origin: origin)
        do {
            confirmWrite(origin: origin, as: try await send() ?? row)
        } catch {
            revertWrite(origin: origin)
            throw error
        }
    }

    /// Shows a row at once for a write that waits for the network, until ``confirmWrite(origin:)`` or
    /// ``revertWrite(origin:)`` is called.
    ///
    /// - Parameters:
    ///   - row: row to show.
    ///   - origin: value by which the arriving change is recognized.
    public func write(_ row: Row, origin: String) {
        kept.write(row, origin: origin)
        sort()
    }

    /// Replaces the row of a pending write with the row that the server has stored.
    public func confirmWrite(origin: String, as row: Row) {
        kept.confirmWrite(origin: origin, as: row)
        sort()
    }

    /// Records that the server accepted a row as written. Origins of other queries have no effect, so the app may call
    /// this on several queries.
    public func confirmWrite(origin: String) {
        kept.confirmWrite(origin: origin)
        sort()
    }

    /// Takes a failed write back: its row disappears, or is shown as the server has it.
    public func revertWrite(origin: String) {
        kept.revertWrite(origin: origin)
        sort()
    }
}

extension Tidewire {
    /// Returns the numbers of rows by group, and again after each change: likes by post, or unread messages by
    /// conversation. A row counts once, however often its change arrives.
    ///
    /// - Parameters:
    ///   - row: type of the rows.
    ///   - filter: condition on the rows; the server evaluates it.
    ///   - group: returns the group of a row.
    ///   - window: rules for gathering changes into batches.
    ///   - snapshot: true to ask the server for the existing rows. The default is true if there is no `fetch`.
    ///   - fetch: fetches the existing rows, first and whenever changes could not be delivered.
    public func counts<Row: LiveRow, Group: Hashable & Sendable>(
        of row: Row.Type, where filter: LiveFilter<Row>? = nil, by group: @escaping @Sendable (Row) -> Group,
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

    /// Subscribes, and returns an iterator over the counts.
    public func makeAsyncIterator() -> Iterator { Iterator(changes: changes.makeAsyncIterator(), group: group) }

    /// Iterator over the counts. The subscription ends when it is released.
    public struct Iterator: AsyncIteratorProtocol {
        var changes: LiveChanges<Row>.Iterator
        let group: @Sendable (Row) -> Group
        private var counts = KeyedCounts<Group, Row.ID>()

        init(changes: LiveChanges<Row>.Iterator, group: @escaping @Sendable (Row) -> Group) {
            self.changes = changes
            self.group = group
        }

        /// Waits for the next counts; nil if the task is cancelled or the user is signed out.
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
