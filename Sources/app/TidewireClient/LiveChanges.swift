/// What happened to a row, in the app's own type.
public enum Change<Row: LiveRow>: Sendable {
    case inserted(Row)
    /// `was` as far as the server told it.
    case updated(Row, was: Row?)
    case deleted(Row.ID, was: Row?)
    /// It is still there, and not in this query any more, or not for this person: it is gone from the list.
    case left(Row.ID, was: Row?)

    public var id: Row.ID {
        switch self {
        case .inserted(let row), .updated(let row, _): row.id
        case .deleted(let id, _), .left(let id, _): id
        }
    }

    /// The row as it is now; nil when it is gone.
    public var row: Row? {
        switch self {
        case .inserted(let row), .updated(let row, _): row
        case .deleted, .left: nil
        }
    }
}

/// A row that the app's type cannot hold, or that came without all of it: it is told, and the others go on.
public struct UnreadableRow: Sendable, Hashable {
    public let change: RowChange
    /// What was expected, and where; never a value.
    public let reason: String
}

public struct Batch<Row: LiveRow>: Sendable {
    public internal(set) var changes: [Change<Row>] = []
    /// Everything there is, told by the server or fetched by the app's own closure: takes the place of what is shown.
    public internal(set) var rows: [Row]?
    /// What the app saves together with the changes. Nil where the server keeps none.
    public internal(set) var position: Position?
    /// Where the server does not tell the rows and there is no closure that fetches them: the app does it itself.
    public internal(set) var mustRefetch: RefetchReason?
    /// There is no position yet: what there is has to be fetched for the first time.
    public internal(set) var isFirst = false
    public internal(set) var isCaughtUp = false
    public internal(set) var problems: [Problem] = []
    public internal(set) var unreadable: [UnreadableRow] = []
    /// Of an answer to `changes(after:of:)`: there are others behind its position.
    public internal(set) var hasMore = false

    public init() {}
}

extension Tidewire {
    /// Changes of a table's rows, in whole transactions, with the position to be saved with them.
    ///
    /// - Parameters:
    ///   - table: another name than the row type's own.
    ///   - filter: which rows; the server decides.
    ///   - after: where the app stands by what it saved; nil to begin now.
    ///   - keptAs: the name under which the client keeps the position itself; see `changes(of:after:keptAs:window:windows:)`.
    ///   - snapshot: whether the server is asked for the rows there are, first and whenever something could not be told. They
    ///     come in one piece as the batch's `rows`, and what changes comes behind them, nothing missing and nothing twice.
    ///     By default that is so where there is no `fetch`; with both, `fetch` is for servers that do not tell rows.
    ///   - fetch: what there is now, asked for first and whenever something could not be told. Changes wait meanwhile and come
    ///     behind it.
    public func live<Row: LiveRow>(
        _ row: Row.Type, table: String? = nil, where filter: Filter<Row>? = nil, after position: Position? = nil,
        keptAs name: String? = nil, window: BatchWindow = .standard, snapshot: Bool? = nil,
        fetch: (@Sendable () async throws -> [Row])? = nil
    ) -> LiveChanges<Row> {
        let binding = Binding(schema: Row.schema, table: table ?? Row.table, filter: filter?.text)
        let tables = changes(
            of: [binding], after: position, keptAs: name, window: window, snapshot: snapshot ?? (fetch == nil))
        return LiveChanges(tables: tables, fetch: fetch)
    }
}

public struct LiveChanges<Row: LiveRow>: AsyncSequence, Sendable {
    let tables: LiveTables
    let fetch: (@Sendable () async throws -> [Row])?

    public func makeAsyncIterator() -> Iterator {
        Iterator(tables: tables.makeAsyncIterator(), clock: tables.engine.clock, fetch: fetch)
    }

    public struct Iterator: AsyncIteratorProtocol {
        let tables: LiveTables.Iterator
        let clock: any ClientClock
        let fetch: (@Sendable () async throws -> [Row])?
        private var reader = RowReader<Row>()
        /// What is still to be fetched, and how often that has failed.
        private var unfetched: (batch: TableBatch, failures: Int)?
        private var chance = Chance(seed: .random(in: .min ... .max))

        init(
            tables: LiveTables.Iterator, clock: any ClientClock, fetch: (@Sendable () async throws -> [Row])?
        ) {
            self.tables = tables
            self.clock = clock
            self.fetch = fetch
        }

        public mutating func next() async -> Batch<Row>? {
            if let (batch, failures) = unfetched {
                unfetched = nil
                await clock.sleep(for: Backoff.delay(attempt: failures, chance: &chance))
                return Task.isCancelled ? nil : await fetched(batch, failures)
            }
            guard let told = await tables.next() else { return nil }
            if fetch != nil, told.isFirst || told.mustRefetch != nil { return await fetched(told, 0) }
            return reader.batch(told)
        }

        /// It is tried again until it succeeds; changes wait behind it.
        private mutating func fetched(_ told: TableBatch, _ failures: Int) async -> Batch<Row> {
            var batch = reader.batch(told)
            do {
                batch.rows = try await fetch?()
                (batch.mustRefetch, batch.isFirst) = (nil, false)
            } catch {
                let problem = Problem(code: "NotFetched", message: "\(error)", severity: .error)
                batch = Batch()
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
