import Foundation
import TidewireClient
import TidewireClientTesting

// Each example of the library's comments and of the pages, so that none of them says what does not compile. A test of the house
// holds them together: `every Swift example is compiled`.

private enum Documented {
    struct Expense: DatedRow {
        static let table = "financial_transactions"
        let id: UUID
        let ownerID: UUID
        let amount: Decimal
        let updatedAt: Date?

        struct Columns: Sendable {
            let ownerID = LiveColumn<UUID>("owner_id")
            let amount = LiveColumn<Decimal>("amount")
        }
        static let columns = Columns()
    }

    struct Note: LiveRow {
        static let table = "notes"
        let id: UUID
        let ownerID: UUID
        let text: String

        struct Columns: Sendable {
            let ownerID = LiveColumn<UUID>("owner_id")
        }
        static let columns = Columns()
    }

    @MainActor final class NotesModel {
        let notes: LiveQuery<Note>

        init(_ tidewire: Tidewire, me: UUID) {
            notes = LiveQuery(tidewire, Note.self, where: \.ownerID == me) { $0.text < $1.text }
        }

        func run() async { await notes.run() }  // in the view's `.task`
    }

    enum Rows {
        struct Expense: LiveRow {
            static let table = "financial_transactions"
            let id: UUID
            let ownerID: UUID  // owner_id
            let amount: Decimal

            struct Columns: Sendable {
                let ownerID = LiveColumn<UUID>("owner_id")
                let amount = LiveColumn<Decimal>("amount")
            }
            static let columns = Columns()
        }
    }

    /// What an app has around its queries.
    struct Store {
        var position: LogPosition?

        func save(_ changes: [LiveChange<Expense>], at position: LogPosition?) throws {}
        func save(_ changes: [RowChange], at position: LogPosition?) throws {}
        func save(_ rows: [Expense], removing: [UUID], at position: LogPosition?) throws {}
        func local(_ id: UUID) -> LocalRow? { nil }
        @Sendable func sent(_ write: PendingWrite) {}
        @Sendable func revert(_ write: PendingWrite, _ why: OfflineQueue.Loss) {}
    }

    struct API {
        func upsert(_ write: PendingWrite) async -> OfflineWrites.Answer { .done }
    }

    struct Move: Codable, Sendable {
        let piece: String
        let to: String
    }

    struct Board {
        func apply(_ move: Move) {}
    }

    struct Session {
        let accessToken = "token"
    }

    static func changes(_ store: Store, _ anonKey: String, _ session: Session, me: UUID) async throws {
        // swift-format-ignore: NeverForceUnwrap
        let tidewire = Tidewire(url: URL(string: "https://hub.example.com")!, key: anonKey, token: session.accessToken)

        for await batch in tidewire.live(Expense.self, where: \.ownerID == me, after: store.position) {
            try store.save(batch.changes, at: batch.position)  // both in one transaction of the app's own
        }
    }

    static func readme(_ store: Store, hub: URL, publicKey: String, _ session: Session, me: UUID) async throws {
        let tidewire = Tidewire(url: hub, key: publicKey, token: session.accessToken)

        for await batch in tidewire.live(Expense.self, where: \.ownerID == me && \.amount > 0, after: store.position) {
            try store.save(batch.changes, at: batch.position)  // both in one transaction of the app's own
        }
    }

    static func merged(_ tidewire: Tidewire, _ store: Store, me: UUID) async throws {
        try await tidewire.live(Expense.self, where: \.ownerID == me, after: store.position)
            .apply(merging: LastWriteWins(), with: store.local) { merged in
                try store.save(merged.stored, removing: merged.removed, at: merged.position)
            }
    }

    static func pages(_ tidewire: Tidewire, _ store: Store) async throws {
        var page = TableBatch()
        repeat {
            page = try await tidewire.changes(after: store.position, of: [TableBinding(table: "reminders")])
            try store.save(page.changes, at: page.position)
        } while page.hasMore
    }

    static func writes(_ storage: any TidewireStorage, _ api: API, _ store: Store, id: String) async throws {
        let writes = OfflineWrites(storage: storage) { write in await api.upsert(write) }
        try writes.add(PendingWrite(table: "notes", row: id, kind: .insert, values: ["text": "hello"], madeAt: .now))

        await writes.run { write in
            store.sent(write)
        } lost: { write, why in
            store.revert(write, why)
        }  // in a task
    }

    static func moves(_ room: TidewireRoom, _ board: Board) async throws {
        let moves = room.messages("move", as: Move.self)
        try await room.join()
        for try await move in moves {
            board.apply(move)
        }
    }

    static func room(_ tidewire: Tidewire, _ board: Board, me: UUID) async throws {
        let room = tidewire.room("board:7", presenceKey: me.uuidString)
        let moves = room.messages("move", as: Move.self)
        try await room.join()
        try await room.send("move", Move(piece: "queen", to: "d4"))
        for try await move in moves {
            board.apply(move)
        }
    }

    static func filter(me: UUID) {
        let open: LiveFilter<Expense> = \.ownerID == me && \.amount > 0
        _ = open
    }

    static func memoryHub() {
        let (hub, clock) = (MemoryHub(), ManualClock())
        let tidewire = Tidewire(url: hub.url, key: "key", token: "ana", transport: hub, clock: clock)
        hub.insert("expenses", ["id": 1, "owner_id": "ana"])
        hub.cut(code: 1012)
        clock.advance(by: .milliseconds(500))
        _ = tidewire
    }
}
