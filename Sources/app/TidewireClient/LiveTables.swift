import Foundation

/// Changes of one or several tables, in the order of commits.
public struct TableBatch: Sendable {
    /// Changes of whole transactions, in the order of commits. They may belong to different tables.
    public internal(set) var changes: [RowChange] = []
    /// Position to save together with the changes, so that the app can resume there later. Nil if the server has no
    /// positions.
    public internal(set) var position: LogPosition?
    /// All existing rows, as inserts. They replace the rows that the app shows. Set only if the client asked the server
    /// for rows.
    public internal(set) var rows: [RowChange]?
    /// Reason why the app must fetch its rows again; later changes follow. Nil otherwise, and for the first fetch.
    public internal(set) var refetchReason: RefetchReason?
    /// True if the app must fetch the existing rows for the first time. `refetchReason` is then nil.
    public internal(set) var isFirst = false
    /// True if the client has delivered all changes that it had missed.
    public internal(set) var isCaughtUp = false
    /// Problems that the server reports, for example that a table is not published.
    public internal(set) var problems: [TidewireProblem] = []
    /// True if there are more changes after `position`. Only in answers to `fetchChanges(after:of:)`.
    public internal(set) var hasMore = false

    /// Creates an empty batch.
    public init() {}
}

extension Tidewire {
    /// Returns the changes of several tables from one subscription, in one order.
    ///
    /// - Parameters:
    ///   - tables: tables to follow, with their filters.
    ///   - position: position that the app saved last; nil to start with changes from now on.
    ///   - name: name under which the client saves the position itself, for apps that do not save it. The client saves
    ///     the position of a batch when the app asks for the next batch.
    ///   - window: rules for gathering changes into batches.
    ///   - windows: windows by table name, for tables to which `window` does not apply.
    ///   - snapshot: true to ask the server for the existing rows: at the start, and whenever it could not deliver
    ///     changes.
    public func changes(
        of tables: [TableBinding], after position: LogPosition? = nil, keptAs name: String? = nil,
        window: BatchWindow = .standard, windows: [String: BatchWindow] = [:], snapshot: Bool = false
    ) -> LiveTables {
        LiveTables(
            engine: engine, subject: Engine.Subject(bindings: tables, wantsRows: snapshot), position: position,
            name: name, batcher: Batcher(window, windows: windows))
    }
}

/// The sequence of batches of one or several tables. Each loop over it makes a separate subscription.
public struct LiveTables: AsyncSequence, Sendable {
    let engine: Engine
    let subject: Engine.Subject
    let position: LogPosition?
    let name: String?
    let batcher: Batcher

    /// Subscribes and returns an iterator over the batches.
    public func makeAsyncIterator() -> Iterator { Iterator(self) }

    /// Iterator over the batches. It subscribes when it is created and unsubscribes when it is released.
    public final class Iterator: AsyncIteratorProtocol {
        private let engine: Engine
        private let number: Int
        private let mailbox: Mailbox<LiveItem>
        private let key: String?
        private var unsaved: LogPosition?

        init(_ tables: LiveTables) {
            engine = tables.engine
            key = tables.name.map { "position:" + $0 + ":" + Engine.fingerprint(tables.subject.bindings) }
            let kept = key.flatMap { tables.engine.storage.load($0) }.flatMap { data in
                LogPosition(String(decoding: data, as: UTF8.self))
            }
            (number, mailbox) = engine.listen(
                Engine.Query(
                    subject: tables.subject, position: tables.position ?? kept, batcher: tables.batcher,
                    asksFirst: true))
        }

        deinit { engine.stopListening(number) }

        /// Waits for the next batch; nil if the task is cancelled or the user is signed out.
        public func next() async -> TableBatch? {
            if let key, let unsaved { engine.storage.save(Data(unsaved.description.utf8), as: key) }
            unsaved = nil
            guard let item = await mailbox.take() else {
                engine.stopListening(number)
                return nil
            }
            var batch = TableBatch()
            switch item {
            case .batch(let changes, let position):
                batch.changes = changes
                batch.position = position
            case .caughtUp(let position):
                batch.position = position
                batch.isCaughtUp = true
            case .rows(let rows, _, let position):
                batch.rows = rows
                batch.position = position
            case .refetch(let reason, let position):
                batch.refetchReason = reason
                batch.isFirst = reason == nil
                batch.position = position
            case .problem(let problem): batch.problems = [problem]
            }
            unsaved = batch.position
            engine.took(number, batch.changes.count, to: batch.position)
            return batch
        }
    }
}
