/// A change of a row, in the app's own type.
public enum LiveChange<Row: LiveRow>: Sendable {
    /// A new row, or an existing row that this query can see from now on.
    case inserted(Row)
    /// A row with new values. `was` holds the old row if the server sent it completely.
    case updated(Row, was: Row?)
    /// A deleted row. `was` holds the old row if the server sent it completely.
    case deleted(Row.ID, was: Row?)
    /// A row that still exists, but no longer matches the query or is no longer visible to this user. Remove it from
    /// the list. `was` holds the old row if the server sent it completely.
    case left(Row.ID, was: Row?)

    /// Id of the changed row.
    public var id: Row.ID {
        switch self {
        case .inserted(let row), .updated(let row, _): row.id
        case .deleted(let id, _), .left(let id, _): id
        }
    }

    /// The row after the change; nil if it was deleted or left the query.
    public var row: Row? {
        switch self {
        case .inserted(let row), .updated(let row, _): row
        case .deleted, .left: nil
        }
    }
}

/// A row that does not fit the app's type, or that arrived incomplete. The client reports it here and delivers the
/// other rows.
public struct UnreadableRow: Sendable, Hashable {
    /// Change as the server sent it.
    public let change: RowChange
    /// Expected type and its place in the row. Never contains a value.
    public let reason: String
}

/// Changes of a query's rows, in the app's own type.
public struct LiveBatch<Row: LiveRow>: Sendable {
    /// Changes of whole transactions, in the order of commits.
    public internal(set) var changes: [LiveChange<Row>] = []
    /// All existing rows, from the server or from the app's `fetch`. They replace the rows that the app shows. Nil in
    /// other batches.
    public internal(set) var rows: [Row]?
    /// Position to save together with the changes. Nil if the server has no positions.
    public internal(set) var position: LogPosition?
    /// Reason why the app must fetch the rows itself: the server does not send them, and there is no `fetch`. Nil
    /// otherwise.
    public internal(set) var refetchReason: RefetchReason?
    /// True if the app must fetch the existing rows itself for the first time: the server does not send them, and there
    /// is no `fetch`. `refetchReason` is then nil.
    public internal(set) var isFirst = false
    /// True if the client has delivered all changes that it had missed.
    public internal(set) var isCaughtUp = false
    /// Problems that the server or the client reports, for example that a table is not published.
    public internal(set) var problems: [TidewireProblem] = []
    /// Rows that do not fit the app's type. The other rows are in the batch.
    public internal(set) var unreadableRows: [UnreadableRow] = []
    /// True if there are more changes after `position`. Only in answers to `fetchChanges(after:of:)`.
    public internal(set) var hasMore = false

    /// Creates an empty batch.
    public init() {}
}

extension Tidewire {
    /// Returns the changes of a table's rows as batches of whole transactions, each with a position to save together
    /// with it.
    ///
    /// - Parameters:
    ///   - row: type of the rows.
    ///   - table: name of the table, if it differs from the row type's own.
    ///   - filter: condition on the rows; the server evaluates it.
    ///   - position: position that the app saved last; nil to start with changes from now on.
    ///   - name: name under which the client keeps the position itself; see
    ///     ``changes(of:after:keptAs:window:windows:snapshot:)``.
    ///   - window: rules for gathering changes into batches.
    ///   - snapshot: true to ask the server for the existing rows: at the start, and whenever it could not deliver
    ///     changes. The rows arrive together as the batch's `rows`. Later changes follow them, with none missing and
    ///     none twice. The default is true if there is no `fetch`. With both, `fetch` is used with servers that do not
    ///     send rows.
    ///   - fetch: fetches the existing rows: at the start, and whenever the server could not deliver changes. New
    ///     changes wait during the fetch and follow the rows.
    public func live<Row: LiveRow>(
        _ row: Row.Type, table: String? = nil, where filter: LiveFilter<Row>? = nil, after position: LogPosition? = nil,
        keptAs name: String? = nil, window: BatchWindow = .standard, snapshot: Bool? = nil,
        fetch: (@Sendable () async throws -> [Row])? = nil
    ) -> LiveChanges<Row> {
        let binding = TableBinding(schema: Row.schema, table: table ?? Row.table, filter: filter?.text)
        let tables = changes(
            of: [binding], after: position, keptAs: name, window: window, snapshot: snapshot ?? (fetch == nil))
        return LiveChanges(tables: tables, fetch: fetch)
    }
}

/// The sequence of a query's batches. Each loop over it makes a separate subscription.
public struct LiveChanges<Row: LiveRow>: AsyncSequence, Sendable {
    let tables: LiveTables
    let fetch: (@Sendable () async throws -> [Row])?

    /// Subscribes and returns an iterator over the batches.
    public func makeAsyncIterator() -> Iterator {
        Iterator(tables: tables.makeAsyncIterator(), clock: tables.engine.clock, fetch: fetch)
    }

    /// Iterator over a query's batches. The subscription ends when the iterator is released.
    public struct Iterator: AsyncIteratorProtocol {
        let tables: LiveTables.Iterator
        let clock: any ClientClock
        let fetch: (@Sendable () async throws -> [Row])?
        private var reader = RowReader<Row>()
        /// Batch whose rows the app must still fetch, and the number of failed attempts.
        private var unfetched: (batch: TableBatch, failures: Int)?
        private var chance = Chance(seed: .random(in: .min ... .max))

        init(
            tables: LiveTables.Iterator, clock: any ClientClock, fetch: (@Sendable () async throws -> [Row])?
        ) {
            self.tables = tables
            self.clock = clock
            self.fetch = fetch
        }

        /// Waits for the next batch; nil if the task is cancelled or the user is signed out.
        public mutating func next() async -> LiveBatch<Row>? {
            if let (batch, failures) = unfetched {
                unfetched = nil
                await clock.sleep(for: Backoff.delay(attempt: failures, chance: &chance))
                return Task.isCancelled ? nil : await fetched(batch, failures)
            }
            guard let told = await tables.next() else { return nil }
            if fetch != nil, told.isFirst || told.refetchReason != nil { return await fetched(told, 0) }
            return reader.batch(told)
        }

        /// Fetches the existing rows with `fetch`, and returns the batch with them. If the fetch fails, the next call
        /// of `next` tries again; changes wait until it succeeds.
        private mutating func fetched(_ told: TableBatch, _ failures: Int) async -> LiveBatch<Row> {
            var batch = reader.batch(told)
            do {
                batch.rows = try await fetch?()
                (batch.refetchReason, batch.isFirst) = (nil, false)
            } catch {
                let problem = TidewireProblem(code: "NotFetched", message: "\(error)", severity: .error)
                batch = LiveBatch()
                batch.problems = [problem]
                unfetched = (told, failures + 1)
            }
            return batch
        }
    }
}

extension ClientClock {
    func sleep(for duration: Duration) async {
        let mailbox = Mailbox<Void>()
        wake(at: now + duration) { mailbox.put(()) }
        await mailbox.take()
    }
}
