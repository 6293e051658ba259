import Foundation
import Observation
import Testing
import TidewireClient
import TidewireClientTesting

// Each Swift example of the library's comments and of the pages, so that all of them compile. A tidy test compares
// them: `every Swift example is compiled`.

enum Documented {
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
            notes = LiveQuery(of: Note.self, from: tidewire, where: \.ownerID == me) { $0.text < $1.text }
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

    struct Reminder: LiveRow {
        static let table = "reminders"
        let id: UUID
        let ownerID: UUID
        let message: String

        struct Columns: Sendable {
            let ownerID = LiveColumn<UUID>("owner_id")
        }
        static let columns = Columns()
    }

    @MainActor final class RemindersModel {
        let reminders: LiveQuery<Reminder>

        init(_ tidewire: Tidewire, me: UUID) {
            reminders = LiveQuery(of: Reminder.self, from: tidewire, where: \.ownerID == me) { $0.message < $1.message }
        }

        func run() async { await reminders.run() }
    }

    struct Order: LiveRow {
        static let table = "orders"
        let id: Int
        let status: String

        struct Columns: Sendable {
            let status = LiveColumn<String>("status")
        }
        static let columns = Columns()
    }

    /// Objects that an app has besides its queries.
    struct Store {
        var position: LogPosition?

        func save(_ changes: [LiveChange<Order>], at position: LogPosition?) throws {}
        func replaceAll(_ rows: [Reminder]) {}
        func put(_ row: Reminder) {}
        func remove(_ id: UUID) {}

        func save(_ changes: [LiveChange<Expense>], at position: LogPosition?) throws {}
        func save(_ changes: [RowChange], at position: LogPosition?) throws {}
        func save(_ rows: [Expense], removing: [UUID], at position: LogPosition?) throws {}
        func local(_ id: UUID) -> LocalRow? { nil }
        @Sendable func sent(_ write: PendingWrite) {}
        @Sendable func revert(_ write: PendingWrite, _ why: OfflineWrites.Loss) {}
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

        func renewedToken() async throws -> String { accessToken }
    }

    static func log(_ something: Any) {}
    static func show(_ text: String) {}

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
                try store.save(merged.rowsToStore, removing: merged.idsToRemove, at: merged.position)
            }
    }

    static func pages(_ tidewire: Tidewire, _ store: Store) async throws {
        var page = TableBatch()
        repeat {
            page = try await tidewire.fetchChanges(after: store.position, of: [TableBinding(table: "reminders")])
            try store.save(page.changes, at: page.position)
        } while page.hasMore
    }

    static func writes(_ storage: any TidewireStorage, _ api: API, _ store: Store, id: String) async throws {
        let writes = OfflineWrites(storage: storage) { write in await api.upsert(write) }
        try writes.add(PendingWrite(table: "notes", row: id, kind: .insert, values: ["text": "hello"], date: .now))

        await writes.run { write in
            store.sent(write)
        } lost: { write, why in
            store.revert(write, why)
        }  // in a task
    }

    static func moves(_ room: TidewireRoom, _ board: Board) async throws {
        let moves = room.messages(event: "move", as: Move.self)
        try await room.join()
        for try await move in moves {
            board.apply(move)
        }
    }

    static func room(_ tidewire: Tidewire, _ board: Board, me: UUID) async throws {
        let room = tidewire.room("board:7", presenceKey: me.uuidString)
        let moves = room.messages(event: "move", as: Move.self)
        try await room.join()
        try await room.send(Move(piece: "queen", to: "d4"), event: "move")
        for try await move in moves {
            board.apply(move)
        }
    }

    static func orders(_ tidewire: Tidewire, _ store: Store) async throws {
        for await batch in tidewire.live(Order.self, where: \.status == "open", after: store.position) {
            try store.save(batch.changes, at: batch.position)
        }
    }

    // MARK: Articles

    static func gettingStarted(hub: URL, publicKey: String, _ session: Session, me: UUID) async throws {
        let tidewire = Tidewire(url: hub, key: publicKey, token: session.accessToken)
        var reminders: [UUID: Reminder] = [:]
        for await batch in tidewire.live(Reminder.self, where: \.ownerID == me) {
            if let rows = batch.rows { reminders = Dictionary(rows.map { ($0.id, $0) }) { _, last in last } }
            for change in batch.changes { reminders[change.id] = change.row }
            for problem in batch.problems { log(problem) }
        }
        var status = ""
        for await state in tidewire.states {
            switch state {
            case .live: status = "up to date"
            case .connecting, .catchingUp: status = "connecting"
            case .offline(.tokenRefused): tidewire.signIn(token: try await session.renewedToken())
            case .offline, .signedOut: status = "offline"
            }
        }
        show(status)
    }

    static func liveQueries(_ tidewire: Tidewire, _ store: Store, me: UUID, blocked: [UUID]) async throws {
        let mine: LiveFilter<Reminder> = \.ownerID == me && !.among(\.ownerID, blocked)
        log(mine)
        for await batch in tidewire.live(Reminder.self, where: \.ownerID == me, window: .immediate) {
            if let rows = batch.rows { store.replaceAll(rows) }
            for change in batch.changes {
                switch change {
                case .inserted(let row), .updated(let row, _): store.put(row)
                case .deleted(let id, _), .left(let id, _): store.remove(id)
                }
            }
            for row in batch.unreadableRows { log(row.reason) }
            for problem in batch.problems { log(problem) }
        }
        let tables = [TableBinding(table: "reminders"), TableBinding(table: "settlements")]
        for await batch in tidewire.changes(of: tables, snapshot: true) {
            for change in batch.changes {
                if change.table == "reminders", change.kind == .insert {
                    store.put(try RowImage(change.record).decode(Reminder.self))
                }
            }
        }
    }

    static func rooms(_ room: TidewireRoom, _ move: Move) async throws {
        try await room.send(["x": 120, "y": 40], event: "cursor", whenOffline: .drop)
        do {
            try await room.send(move, event: "move", whenOffline: .queue(atMost: .seconds(30)))
        } catch RoomError.expired, RoomError.notJoined {
            show("You are offline. Try again later.")
        } catch RoomError.unconfirmed {
            show("Your move may not have arrived.")
        }
        let moves = room.messages(event: "move", as: Move.self) { error in log(error) }
        log(moves)
        let events = room.events
        room.track(["name": "Ana"])
        try await room.join()
        for await event in events {
            if case .presence(let joined, let left, let now) = event {
                show("\(now.count) here, \(joined.count) came, \(left.count) left")
            }
        }
    }

    @MainActor static func writingOffline(
        _ reminders: LiveQuery<Reminder>, _ reminder: Reminder, _ api: API, directory: URL, id: UUID
    ) async throws {
        let storage = Tidewire.FileStorage(directory: directory)
        let writes = OfflineWrites(storage: storage) { write in await api.upsert(write) }
        try writes.add(.insert, table: "reminders", row: id.filterText, values: ["message": "call Ben"])
        reminders.write(reminder, origin: reminder.id.filterText)
        await writes.run { write in
            reminders.confirmWrite(origin: write.row)
        } lost: { write, why in
            reminders.revertWrite(origin: write.row)
            log(why)
        }
    }

    static func positions(_ tidewire: Tidewire, _ store: Store, me: UUID) async throws {
        for await batch in tidewire.live(Expense.self, where: \.ownerID == me, after: store.position) {
            try store.save(batch.changes, at: batch.position)
        }
        tidewire.enterBackground()
        tidewire.enterForeground()
        tidewire.updateNetwork(isReachable: true)
    }

    static func keptPositions(hub: URL, publicKey: String, _ session: Session, directory: URL, me: UUID) {
        let tidewire = Tidewire(
            url: hub, key: publicKey, token: session.accessToken, storage: Tidewire.FileStorage(directory: directory))
        let changes = tidewire.live(Expense.self, where: \.ownerID == me, keptAs: "expenses")
        log(changes)
    }

    /// Test in the walk-through. `RoomTests` runs it.
    @MainActor static func sharedList(list: UUID) async throws {
        let (hub, clock) = (MemoryHub(), ManualClock())
        let tidewire = Tidewire(hub: hub, token: "ana", clock: clock)
        let writes = OfflineWrites(storage: Tidewire.MemoryStorage(), clock: clock) { _ in .later }
        let model = ListModel(tidewire, list: list, me: "ana", writes: writes)

        hub.insert(
            "items",
            ["id": .string(UUID().filterText), "list_id": .string(list.filterText), "title": "milk", "is_done": false])
        let running = Task { await model.run() }
        while model.items.rows.isEmpty { await Task.yield() }
        #expect(model.items.rows.map(\.title) == ["milk"])

        hub.cut()
        try model.add("bread")
        #expect(model.items.rows.map(\.title) == ["bread", "milk"])
        running.cancel()
    }

    static func filter(me: UUID) {
        let open: LiveFilter<Expense> = \.ownerID == me && \.amount > 0
        _ = open
    }

    static func memoryHub() {
        let (hub, clock) = (MemoryHub(), ManualClock())
        let tidewire = Tidewire(hub: hub, token: "ana", clock: clock)
        hub.insert("expenses", ["id": 1, "owner_id": "ana"])
        hub.cut(code: 1012)
        clock.advance(by: .milliseconds(500))
        _ = tidewire
    }
}

// MARK: The shared list

struct Item: LiveRow, Hashable {
    static let table = "items"
    let id: UUID
    let listID: UUID
    let title: String
    let isDone: Bool

    struct Columns: Sendable {
        let listID = LiveColumn<UUID>("list_id")
    }
    static let columns = Columns()
}

@MainActor @Observable final class ListModel {
    let items: LiveQuery<Item>
    private(set) var people: [String] = []
    private(set) var hint: String?

    private let list: UUID
    private let room: TidewireRoom
    private let writes: OfflineWrites

    init(_ tidewire: Tidewire, list: UUID, me: String, writes: OfflineWrites) {
        self.list = list
        self.writes = writes
        room = tidewire.room("list:\(list.filterText)", presenceKey: me)
        items = LiveQuery(
            of: Item.self, from: tidewire, where: \.listID == list, window: .immediate, origin: { $0.id.filterText },
            sortedBy: { $0.title < $1.title })
    }
}

extension ListModel {
    func run() async {
        async let items: Void = items.run()
        async let people: Void = followPeople()
        _ = await (items, people)
    }

    private func followPeople() async {
        let events = room.events
        room.track([:])
        defer { room.leave() }
        do {
            try await room.join()
            hint = nil
        } catch {
            hint = "\(error)"
            return
        }
        for await event in events {
            if case .presence(_, _, let now) = event { people = now.keys.sorted() }
        }
    }
}

extension ListModel {
    func add(_ title: String) throws {
        let item = Item(id: UUID(), listID: list, title: title, isDone: false)
        let id = item.id.filterText
        try writes.add(
            .insert, table: Item.table, row: id,
            values: ["list_id": .string(list.filterText), "title": .string(title)])
        items.write(item, origin: id)
    }

    func sendWrites() async {
        await writes.run { write in
            items.confirmWrite(origin: write.row)
        } lost: { write, why in
            items.revertWrite(origin: write.row)
            hint = "\(write.row) was not saved: \(why)"
        }
    }
}
