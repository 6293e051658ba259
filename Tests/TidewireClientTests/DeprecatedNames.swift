import Foundation
import TidewireClient
import TidewireClientTesting

// Code of an app that still uses the former names. It compiles only while each alias stands for the renamed type.

@available(*, deprecated)
private enum FormerNames {
    static func filter(_ filter: Filter<Note>) -> LiveFilter<Note> { filter }
    static func change(_ change: Change<Note>) -> LiveChange<Note> { change }
    static func batch(_ batch: Batch<Note>) -> LiveBatch<Note> { batch }
    static func column(_ column: Column<String>) -> LiveColumn<String> { column }
    static func position(_ position: Position) -> LogPosition { position }
    static func problem(_ problem: Problem) -> TidewireProblem { problem }
    static func room(_ room: Room) -> TidewireRoom { room }
    static func resolution(_ resolution: Resolution) -> ConflictResolution { resolution }
    static func state(_ state: ClientState) -> Tidewire.State { state }
    static func states(_ states: ClientStates) -> Tidewire.States { states }
    static func reason(_ reason: OfflineReason) -> Tidewire.OfflineReason { reason }
    static func interruption(_ interruption: Interruption) -> Tidewire.Interruption { interruption }
    static func memory(_ storage: MemoryStorage) -> Tidewire.MemoryStorage { storage }
    static func files(_ storage: FileStorage) -> Tidewire.FileStorage { storage }
    static func behavior(_ behavior: WhenOffline) -> TidewireRoom.OfflineBehavior { behavior }
    static func presences(_ presences: Presences) -> TidewireRoom.Presences { presences }
    static func event(_ event: RoomEvent) -> TidewireRoom.Event { event }
    static func events(_ events: RoomEvents) -> TidewireRoom.Events { events }
    static func messages(_ messages: RoomMessages<Int>) -> TidewireRoom.Messages<Int> { messages }
    static func unreadable(_ message: UnreadableMessage) -> RoomMessageError.UnreadableMessage { message }
    static func error(_ error: JSONError) -> JSONValue.ParsingError { error }
    static func limits(_ limits: OfflineQueue.Limits) -> OfflineWrites.Limits { limits }
    static func refusal(_ refusal: OfflineQueue.Refusal) -> OfflineWrites.Refusal { refusal }
    static func loss(_ loss: OfflineQueue.Loss) -> OfflineWrites.Loss { loss }
    static func refusal(_ refusal: MessageRefusal) -> MemoryHub.MessageRefusal { refusal }
    static func client(_ hub: MemoryHub) -> Tidewire { Tidewire(url: hub.url, key: "key", transport: hub) }
}

// Former names of members: each call must still find its replacement.

@available(*, deprecated)
private enum FormerMembers {
    static func client(_ tidewire: Tidewire) async throws {
        _ = tidewire.user
        tidewire.networkChanged(isReachable: true)
        _ = try await tidewire.changes(after: nil, of: [TableBinding(table: "notes")])
        _ = try await tidewire.changes(after: nil, of: Note.self)
        _ = tidewire.count(Note.self, by: \.owner)
    }

    @MainActor static func query(_ tidewire: Tidewire, _ row: Note) async throws {
        let query = LiveQuery(tidewire, Note.self) { $0.id < $1.id }
        _ = query.mustRefetch
        query.replace([row])
        try await query.optimistic(row, origin: "1") { nil }
        query.succeeded("1", row)
        query.succeeded("1")
        query.failed("1")
    }

    static func optimistic(_ row: Note) {
        var rows = OptimisticRows<Note> { "\($0.id)" }
        rows.succeeded("1", row)
        rows.succeeded("1")
        rows.failed("1")
        rows.hear(.inserted(row))
        rows.replaceAll([row])
        var keys = OptimisticKeys<Int, Int> { $0 }
        _ = keys.count(1)
        keys.succeeded(1)
        keys.failed(1)
        keys.hear(1, isThere: true)
        keys.replaceAll([1])
    }

    static func room(_ room: TidewireRoom, _ hub: MemoryHub) async throws {
        try await room.send("move", ["x": 1])
        try await room.send("move", [1, 2].map { $0 * 2 }, whenOffline: .drop)
        _ = room.messages("move", as: Int.self)
        _ = room.messages("move")
        hub.broadcast("board", "move", 1)
        hub.broadcast("board", "move", bytes: [1])
    }

    static func limits(_ limits: inout OfflineWrites.Limits) {
        (limits.writes, limits.bytes, limits.age) = (1, 2, 3)
    }

    static func writes(_ writes: OfflineWrites) throws {
        _ = writes.waiting
        _ = writes.hasUnsent("notes", "1")
        try writes.add(.insert, "notes", "1", ["text": "hello"], newestOnly: true)
        try writes.add(PendingWrite(table: "notes", row: "1", kind: .insert, newestOnly: true, madeAt: Date()))
        _ = writes.waiting.first?.newestOnly
        writes.clear()
    }

    static func values(_ live: LiveBatch<Note>, _ tables: TableBatch, _ storage: any TidewireStorage) {
        _ = (live.mustRefetch, live.unreadable, tables.mustRefetch)
        var window = BatchWindow(quiet: .zero, longest: .zero)
        (window.quiet, window.longest) = (window.longest, window.quiet)
        _ = LiveFilter<Note>(column: "id", "eq", "1")
        storage.save(nil, "position")
    }

    static func merged<Row: DatedRow>(_ batch: MergedBatch<Row>) {
        _ = (batch.stored, batch.removed, batch.kept)
    }
}
