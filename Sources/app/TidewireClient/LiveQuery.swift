import Foundation
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
    /// Rows in order, including the rows of pending writes.
    public private(set) var rows: [Row] = []
    /// True if the client has delivered all changes that it had missed.
    public private(set) var isCaughtUp = false
    /// Problems reported by the server, by code. Only the newest problem of each code is kept.
    public private(set) var problems: [String: TidewireProblem] = [:]
    /// Reason why the rows may be wrong: the server does not send the rows, and there is no `fetch`. The app must then
    /// fetch the rows and call ``replaceRows(with:)``. Nil otherwise.
    public private(set) var refetchReason: RefetchReason?
    /// True once the existing rows have been loaded, even if the table has none.
    public private(set) var hasBegun = false

    private let changes: LiveChanges<Row>
    private let areInOrder: @Sendable (Row, Row) -> Bool
    private let leavesAt: (@Sendable (Row) -> Date?)?
    /// Time on the client's clock at which the query next looks for rows that have left; nil if none will leave.
    @ObservationIgnored private var nextLook: Duration?
    /// Rows from the server together with the rows of pending writes.
    @ObservationIgnored private var kept: OptimisticRows<Row>

    /// Creates a query. It receives changes while ``run()`` is running.
    ///
    /// - Parameters:
    ///   - row: type of the rows.
    ///   - tidewire: client that the query uses.
    ///   - filter: condition on the rows; the server evaluates it.
    ///   - window: rules for gathering changes into batches.
    ///   - snapshot: true to ask the server for the existing rows. The default is true if there is no `fetch`.
    ///   - fetch: fetches the existing rows: at the start, and whenever the server could not deliver changes.
    ///   - origin: returns the origin of the write that created a row; see ``write(_:origin:send:)``. The default is
    ///     the row's id, which is right if the app chooses the ids.
    ///   - leavesAt: returns the time at which a row leaves the query although it does not change, or nil. It belongs to
    ///     a filter such as ``LiveFilter/newer(_:than:)``.
    ///   - areInOrder: returns true if the first row comes before the second one.
    public init(
        of row: Row.Type, from tidewire: Tidewire, where filter: LiveFilter<Row>? = nil,
        window: BatchWindow = .standard, snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil,
        origin: @escaping @Sendable (Row) -> String? = { "\($0.id)" },
        leavesAt: (@Sendable (Row) -> Date?)? = nil,
        sortedBy areInOrder: @escaping @Sendable (Row, Row) -> Bool
    ) {
        changes = tidewire.live(row, where: filter, window: window, snapshot: snapshot, fetch: fetch)
        kept = OptimisticRows(origin: origin)
        self.areInOrder = areInOrder
        self.leavesAt = leavesAt
    }

    /// Receives the table's changes until its task is cancelled. When it is called again, it starts with the existing
    /// rows.
    public func run() async {
        for await batch in changes { take(batch) }
        isCaughtUp = false
    }

    /// Replaces the rows by rows that the app has fetched. The rows of pending writes remain.
    public func replaceRows(with fetched: [Row]) {
        kept.replaceAll(with: fetched)
        refetchReason = nil
        hasBegun = true
        sort()
    }

    /// Applies a batch to the rows.
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

    private func sort() {
        if let leavesAt { removeLeft(leavesAt) }
        rows = kept.all.sorted(by: areInOrder)
    }

    // MARK: Rows that age

    /// Longest time until the query looks for rows that have left. The device's clock may be set meanwhile.
    private static var longestWait: Duration { .seconds(60) }

    /// Removes the rows whose time has come, and waits for the next one.
    private func removeLeft(_ leavesAt: @Sendable (Row) -> Date?) {
        let now = Date()
        var next: Date?
        for row in kept.all {
            guard let end = leavesAt(row) else { continue }
            if end <= now { kept.apply(.left(row.id, was: row)) } else { next = min(next ?? end, end) }
        }
        guard let next else { return }
        let clock = changes.tables.engine.clock
        let look = clock.now + min(Self.longestWait, .seconds(next.timeIntervalSince(now)))
        if let nextLook, nextLook <= look { return }
        nextLook = look
        clock.wake(at: look) { [weak self] in
            Task { @MainActor [weak self] in self?.look(look) }
        }
    }

    private func look(_ moment: Duration) {
        // An earlier look has been asked for meanwhile.
        guard nextLook == moment else { return }
        nextLook = nil
        sort()
    }

    // MARK: Writing

    /// Shows a row immediately and sends it. Removes the row if sending fails. The server's answer and the row's change
    /// may arrive in either order; the row is shown once.
    ///
    /// - Parameters:
    ///   - row: row to show.
    ///   - origin: value by which the query recognizes the change that this write causes.
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

    /// Shows a row immediately for a write that is sent later, until the app calls ``confirmWrite(origin:)`` or
    /// ``revertWrite(origin:)``.
    ///
    /// - Parameters:
    ///   - row: row to show.
    ///   - origin: value by which the query recognizes the change that this write causes.
    public func write(_ row: Row, origin: String) {
        kept.write(row, origin: origin)
        sort()
    }

    /// Replaces the row of a pending write by the row that the server has stored.
    public func confirmWrite(origin: String, as row: Row) {
        kept.confirmWrite(origin: origin, as: row)
        sort()
    }

    /// Records that the server accepted a row as it was written. An origin that this query does not know has no effect,
    /// so the app may call this on several queries.
    public func confirmWrite(origin: String) {
        kept.confirmWrite(origin: origin)
        sort()
    }

    /// Undoes a failed write. Its row disappears, or is shown with the server's values.
    public func revertWrite(origin: String) {
        kept.revertWrite(origin: origin)
        sort()
    }
}

extension Tidewire {
    /// Returns the numbers of rows by group, at the start and after each change: likes per post, or unread messages per
    /// conversation. A row counts once, even if its change arrives several times.
    ///
    /// - Parameters:
    ///   - row: type of the rows.
    ///   - filter: condition on the rows; the server evaluates it.
    ///   - group: returns the group of a row.
    ///   - window: rules for gathering changes into batches.
    ///   - snapshot: true to ask the server for the existing rows. The default is true if there is no `fetch`.
    ///   - fetch: fetches the existing rows: at the start, and whenever the server could not deliver changes.
    public func counts<Row: LiveRow, Group: Hashable & Sendable>(
        of row: Row.Type, where filter: LiveFilter<Row>? = nil, by group: @escaping @Sendable (Row) -> Group,
        window: BatchWindow = .standard, snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil
    ) -> LiveCounts<Row, Group> {
        let changes = live(row, where: filter, window: window, snapshot: snapshot, fetch: fetch)
        return LiveCounts(changes: changes, group: group)
    }
}

/// The sequence of counts, with an element after each batch that changes them.
public struct LiveCounts<Row: LiveRow, Group: Hashable & Sendable>: AsyncSequence, Sendable {
    let changes: LiveChanges<Row>
    let group: @Sendable (Row) -> Group

    /// Subscribes and returns an iterator over the counts.
    public func makeAsyncIterator() -> Iterator { Iterator(changes: changes.makeAsyncIterator(), group: group) }

    /// Iterator over the counts. The subscription ends when the iterator is released.
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
