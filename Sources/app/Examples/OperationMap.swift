import Foundation
import Observation
import TidewireClient

/// A user's location at a moment.
public struct Location: LiveRow, Hashable {
    public static let table = "locations_stream"
    public let id: UUID
    public let userID: UUID
    public let timestamp: Date
    public let latitude: Double
    public let longitude: Double

    public struct Columns: Sendable {
        let operationID = LiveColumn<UUID>("operation_id")
        let timestamp = LiveColumn<Date>("timestamp")
    }
    public static let columns = Columns()
}

public struct OperationMessage: LiveRow, Hashable {
    public static let table = "op_messages"
    public let id: UUID
    public let userID: UUID
    public let content: String
    public let createdAt: Date

    public struct Columns: Sendable { let operationID = LiveColumn<UUID>("operation_id") }
    public static let columns = Columns()
}

/// Model of a map on which the members of an operation see each other, with a chat.
@MainActor @Observable
public final class OperationModel {
    /// Length of a trail in seconds. The map leaves out older locations.
    public static let trail: TimeInterval = 600

    public private(set) var problems: [TidewireProblem] = []
    /// Users who have the map open now.
    public private(set) var online: Set<UUID> = []
    public private(set) var hasBegun = false

    private var locations: [UUID: Location] = [:]
    private var chat = OptimisticRows<OperationMessage> { $0.id.filterText }
    private let tidewire: Tidewire
    private let writes: OfflineWrites
    private let operation: UUID
    private let me: UUID
    private let now: @Sendable () -> Date

    public init(
        _ tidewire: Tidewire, writes: OfflineWrites, operation: UUID, me: UUID,
        now: @escaping @Sendable () -> Date = { Date() }
    ) {
        self.tidewire = tidewire
        self.writes = writes
        self.operation = operation
        self.me = me
        self.now = now
    }

    // MARK: Shown data

    public var trails: [UUID: [Location]] {
        let oldest = now().addingTimeInterval(-Self.trail)
        return Dictionary(grouping: locations.values.filter { $0.timestamp > oldest }, by: \.userID)
            .mapValues { $0.sorted { $0.timestamp < $1.timestamp } }
    }
    public var markers: [UUID: Location] { trails.compactMapValues(\.last) }
    public var messages: [OperationMessage] {
        chat.all.sorted { ($0.createdAt, $0.id.uuidString) < ($1.createdAt, $1.id.uuidString) }
    }

    // MARK: Subscriptions

    /// Receives locations, messages and presence until the view's `.task` is cancelled.
    public func run() async {
        async let map: Void = followLocations()
        async let chat: Void = followMessages()
        async let people: Void = followPeople()
        _ = await (map, chat, people)
    }

    private func followLocations() async {
        let recent: LiveFilter<Location> =
            \.operationID == operation && \.timestamp > now().addingTimeInterval(-Self.trail)
        for await batch in tidewire.live(Location.self, where: recent, window: .immediate) {
            problems += batch.problems
            if let rows = batch.rows { locations = Dictionary(rows.map { ($0.id, $0) }) { _, last in last } }
            for change in batch.changes { locations[change.id] = change.row }
            let oldest = now().addingTimeInterval(-Self.trail)
            locations = locations.filter { $0.value.timestamp > oldest }
        }
    }

    private func followMessages() async {
        for await batch in tidewire.live(
            OperationMessage.self, where: \.operationID == operation, window: .immediate)
        {
            problems += batch.problems
            if let rows = batch.rows { chat.replaceAll(with: rows) }
            for change in batch.changes { chat.apply(change) }
            if batch.rows != nil { hasBegun = true }
        }
    }

    private func followPeople() async {
        let room = tidewire.room("operation:" + operation.filterText, presenceKey: me.filterText)
        let events = room.events
        room.track(["user_id": .string(me.filterText)])
        do {
            try await room.join()
        } catch let error as RoomError {
            problems.append(TidewireProblem(code: "NotJoined", message: "\(error)", severity: .error))
        } catch {
            // The task was cancelled, because the view has disappeared.
            return
        }
        for await event in events {
            if case .presence(_, _, let now) = event { online = Set(now.keys.compactMap { UUID(uuidString: $0) }) }
        }
        online = []
    }

    // MARK: Actions

    /// Publishes a location. If several wait for the network, only the newest is sent.
    public func publish(latitude: Double, longitude: Double) throws {
        let values: [String: JSONValue] = [
            "id": .string(UUID().filterText), "operation_id": .string(operation.filterText),
            "user_id": .string(me.filterText), "latitude": .number("\(latitude)"), "longitude": .number("\(longitude)"),
            "accuracy": 5, "timestamp": .string(now().filterText),
        ]
        try writes.add(.insert, table: Location.table, row: me.filterText, values: values, isReplaceable: true)
    }

    /// Shows a message immediately, and sends it when the network allows it.
    public func send(_ content: String) throws {
        let message = OperationMessage(id: UUID(), userID: me, content: content, createdAt: now())
        let values: [String: JSONValue] = [
            "operation_id": .string(operation.filterText), "user_id": .string(me.filterText),
            "content": .string(content), "created_at": .string(message.createdAt.filterText),
        ]
        let id = message.id.filterText
        try writes.add(.insert, table: OperationMessage.table, row: id, values: values)
        chat.write(message, origin: id)
    }

    public func sendWrites() async {
        await writes.run { write in
            chat.confirmWrite(origin: write.row)
        } lost: { write, why in
            chat.revertWrite(origin: write.row)
            problems.append(TidewireProblem(code: "NotWritten", message: "\(write.name): \(why)", severity: .error))
        }
    }
}
