import Foundation

/// Changes of one or several tables, as they were committed.
public struct TableBatch: Sendable {
    /// Whole transactions, in the order of commits, across tables.
    public internal(set) var changes: [RowChange] = []
    /// What the app saves together with them, to go on behind them after any absence. Nil where the server keeps none.
    public internal(set) var position: Position?
    /// All rows there are, as inserts, in place of what is shown: told by the server where they were asked for.
    public internal(set) var rows: [RowChange]?
    /// What is shown has to be fetched again; changes go on from here.
    public internal(set) var mustRefetch: RefetchReason?
    /// What there is has to be fetched for the first time.
    public internal(set) var isFirst = false
    /// Everything that was missed has been told.
    public internal(set) var isCaughtUp = false
    public internal(set) var problems: [Problem] = []
    /// Of an answer to `changes(after:of:)`: there are others behind its position.
    public internal(set) var hasMore = false

    public init() {}
}

extension Tidewire {
    /// Changes of several tables on one subscription, in one order.
    ///
    /// - Parameters:
    ///   - after: where the app stands by what it saved; nil to begin now.
    ///   - keptAs: the name under which the client keeps the position itself, for apps that save nothing with it. It counts
    ///     as saved when the next batch is asked for.
    ///   - windows: by table, for those that want another than `window`.
    ///   - snapshot: whether the server is asked for the rows there are, first and whenever something could not be told.
    public func changes(
        of tables: [Binding], after position: Position? = nil, keptAs name: String? = nil,
        window: BatchWindow = .standard, windows: [String: BatchWindow] = [:], snapshot: Bool = false
    ) -> LiveTables {
        LiveTables(
            engine: engine, subject: Engine.Subject(bindings: tables, wantsRows: snapshot), position: position,
            name: name, batcher: Batcher(window, windows: windows))
    }
}

public struct LiveTables: AsyncSequence, Sendable {
    let engine: Engine
    let subject: Engine.Subject
    let position: Position?
    let name: String?
    let batcher: Batcher

    public func makeAsyncIterator() -> Iterator { Iterator(self) }

    /// Subscribes as it is made, and unsubscribes as it goes.
    public final class Iterator: AsyncIteratorProtocol {
        private let engine: Engine
        private let number: Int
        private let mailbox: Mailbox<LiveItem>
        private let key: String?
        private var unsaved: Position?

        init(_ tables: LiveTables) {
            engine = tables.engine
            key = tables.name.map { "position:" + $0 + ":" + Engine.fingerprint(tables.subject.bindings) }
            let kept = key.flatMap { tables.engine.storage.load($0) }.flatMap { data in
                Position(String(decoding: data, as: UTF8.self))
            }
            (number, mailbox) = engine.listen(
                Engine.Query(
                    subject: tables.subject, position: tables.position ?? kept, batcher: tables.batcher,
                    asksFirst: true))
        }

        deinit { engine.stopListening(number) }

        public func next() async -> TableBatch? {
            if let key, let unsaved { engine.storage.save(Data(unsaved.description.utf8), key) }
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
                batch.mustRefetch = reason
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
