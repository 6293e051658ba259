import Foundation
import Synchronization
import TidewireClient

/// Server without sockets that admits every client and sends it the given messages. The server does only a few
/// comparisons, so the benchmark measures the client.
final class PlayedServer: Transport {
    private struct Channel {
        let topic: String
        var sent = 0
    }

    private struct State {
        var hear: (@Sendable (TransportEvent) -> Void)?
        var channels: [Channel] = []
    }

    private let state = Mutex(State())

    var channels: Int { state.withLock { $0.channels.count } }

    func connect(
        to request: TransportRequest, hear: @escaping @Sendable (TransportEvent) -> Void
    ) -> any TransportConnection {
        state.withLock { $0.hear = hear }
        hear(.opened)
        return PlayedConnection(server: self)
    }

    func get(_ request: TransportRequest) async throws -> TransportAnswer {
        throw BenchFailure("nothing is asked for over HTTP here")
    }

    fileprivate func received(_ text: String) {
        guard let message = try? ClientMessage(parsing: text), let ref = message.ref else { return }
        var response: JSONValue = [:]
        if message.event == "phx_join" {
            state.withLock { $0.channels.append(Channel(topic: message.topic)) }
            let bindings = message.payload["config"]?["postgres_changes"]?.array ?? []
            response = ["postgres_changes": .array(bindings), "tidewire": ["position": .string(Self.position(0))]]
        }
        let reply = TidewireClient.ServerMessage(
            joinRef: message.joinRef, ref: ref, topic: message.topic, event: "phx_reply",
            payload: ["status": "ok", "response": response])
        say(reply.text)
        if message.event == "phx_join" { say(Self.caughtUp(message)) }
    }

    private static func position(_ number: Int) -> String { "bench.\(number)" }

    private static func caughtUp(_ join: ClientMessage) -> String {
        let words: JSONValue = [
            "extension": "system", "status": "ok", "code": "CaughtUp", "message": "Caught up",
            "position": .string(position(0)), "channel": .string(join.topic),
        ]
        return TidewireClient.ServerMessage(joinRef: join.joinRef, topic: join.topic, event: "system", payload: words)
            .text
    }

    private func say(_ text: String) { state.withLock { $0.hear }?(.text(text)) }

    // MARK: Rows

    /// Returns the next messages of the channel, as the hub would write them: one row in each message, `rowsInCommit`
    /// rows in each commit.
    func messages(_ count: Int, rowsInCommit: Int) throws -> [String] {
        try state.withLock { state in
            guard state.channels.count == 1 else {
                throw BenchFailure("void (client): there are \(state.channels.count) channels instead of one")
            }
            return (0..<count).map { _ in
                state.channels[0].sent += 1
                return Self.message(state.channels[0].sent, state.channels[0].topic, rowsInCommit)
            }
        }
    }

    func say(_ messages: ArraySlice<String>) {
        let hear = state.withLock { $0.hear }
        for message in messages { hear?(.text(message)) }
    }

    private static func message(_ number: Int, _ topic: String, _ rowsInCommit: Int) -> String {
        let commit = number / rowsInCommit
        let time = "2026-01-01T\(twoDigits(commit / 3_600_000 % 24)):\(twoDigits(commit / 60_000 % 60))"
        let stamp = time + ":\(twoDigits(commit / 1000 % 60)).\(String(1000 + commit % 1000).dropFirst())Z"
        let data: JSONValue = [
            "schema": "public", "table": "expenses", "type": "INSERT", "commit_timestamp": .string(stamp),
            "errors": nil, "columns": BenchedExpense.columnsOnTheWire, "record": BenchedExpense.record(number),
        ]
        let payload: JSONValue = [
            "ids": [1], "data": data, "position": .string(position(number)),
            "previous": .string(position(number - 1)),
        ]
        return TidewireClient.ServerMessage(topic: topic, event: "postgres_changes", payload: payload).text
    }

    private static func twoDigits(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
}

private struct PlayedConnection: TransportConnection {
    let server: PlayedServer

    func send(_ text: String) { server.received(text) }
    func close() {}
}

/// Row with nine columns of types that apps use.
struct BenchedExpense: LiveRow {
    static let table = "expenses"
    let id: UUID
    let ownerID: UUID
    let title: String
    let amount: Decimal
    let isPaid: Bool
    let version: Int
    let note: String?
    let createdAt: Date
    let updatedAt: Date

    struct Columns: Sendable {
        let version = LiveColumn<Int>("version")
    }
    static let columns = Columns()

    private static let types = [
        ("id", "uuid"), ("owner_id", "uuid"), ("title", "text"), ("amount", "numeric"), ("is_paid", "bool"),
        ("version", "int8"), ("note", "text"), ("created_at", "timestamptz"), ("updated_at", "timestamptz"),
    ]

    static let columnsOnTheWire = JSONValue.array(
        types.map { ["name": .string($0.0), "type": .string($0.1)] })

    static func record(_ number: Int) -> JSONValue {
        let digits = String(100_000_000 + number)
        return [
            "id": .string("00000000-0000-4000-8000-000\(digits)"), "owner_id": "6f1de8a2-33b5-4a0e-9a2d-0c5f4d6b7e11",
            "title": .string("dinner no. \(number)"), "amount": .number("\(number % 500).25"),
            "is_paid": .bool(number % 2 == 0), "version": .number("\(number)"), "note": nil,
            "created_at": "2026-01-01T08:15:30.123456+00:00", "updated_at": "2026-01-01T09:15:30.654321+00:00",
        ]
    }
}

/// Baseline that decodes a message with Foundation's `JSONDecoder`. The comparison favours it: it leaves dates as text,
/// and it does not order rows, distribute them to queries, or recover lost ones.
struct PlainFrame: Decodable {
    private struct Payload: Decodable {
        let data: Change
    }

    private struct Change: Decodable {
        let record: PlainExpense
    }

    let row: PlainExpense

    init(from decoder: any Decoder) throws {
        var items = try decoder.unkeyedContainer()
        _ = try items.decode(String?.self)
        _ = try items.decode(String?.self)
        _ = try items.decode(String.self)
        _ = try items.decode(String.self)
        row = try items.decode(Payload.self).data.record
    }
}

struct PlainExpense: Decodable {
    private enum CodingKeys: String, CodingKey {
        case id, title, amount, version, note
        case ownerID = "owner_id"
        case isPaid = "is_paid"
        case createdAt = "created_at"
        case updatedAt = "updated_at"
    }

    let id: UUID
    let ownerID: UUID
    let title: String
    let amount: Decimal
    let isPaid: Bool
    let version: Int
    let note: String?
    let createdAt: String
    let updatedAt: String
}
