import Bytes
import Calling
import Change
import Diagnostics
import History
import System

/// Target that broadcasts the changes on channels of a hub. Each broadcast contains a change in the form that clients
/// receive, and the mark of its transaction.
///
/// A transaction is normally one request, of which the hub accepts all messages or none. A large transaction is divided
/// into several requests.
public final class HubTarget: ReplayTarget {
    public struct Settings: Sendable {
        public var hub: HubAddress
        public var token: String
        /// Channel for the changes of all tables. Nil means one channel for each table, `replay:SCHEMA.TABLE`.
        public var channel: String?
        public var isPrivate = false

        /// File of certificates to trust in addition to the system's.
        public var certificates: String?

        public init(_ hub: HubAddress, token: String) {
            self.hub = hub
            self.token = token
        }
    }

    private let settings: Settings
    private let request: ReplayRequest
    private let http: HubRequest
    private let rest: (UInt64) -> Void
    private var messages = ByteWriter(capacity: 4096)
    /// Number of messages in `messages`.
    private var count = 0
    /// Offset and table of the first message in `messages`; nil if there is none.
    private var first: (offset: UInt64, table: TableName)?

    public init(
        _ settings: Settings, _ request: ReplayRequest, isInterrupted: @escaping () -> Bool = { false },
        rest: @escaping (UInt64) -> Void = { BackgroundThread.rest(nanoseconds: $0) }
    ) throws {
        self.settings = settings
        self.request = request
        self.rest = rest
        http = try HubRequest(
            settings.hub, token: settings.token, trusting: settings.certificates,
            waiting: Limits.replayPatienceMilliseconds / 20, isInterrupted: isInterrupted)
    }

    /// Returns the epoch of the hub's log, if the hub reports one.
    public func epoch() throws -> String? {
        let answer = try http.get("changes?table=*&limit=1&live=false")
        guard answer.status == 200, let mark = answer.text.firstRange(of: "\"position\":\"") else { return nil }
        return String(answer.text[mark.upperBound...].prefix { $0 != "." && $0 != "\"" })
    }

    // MARK: Transactions

    public func begin(_ mark: ReplayMark) throws {
        precondition(count == 0, "a transaction begins where none is")
    }

    public func take(_ change: RecordedChange) throws {
        guard let relation = change.relation else { return }
        let message = BroadcastChange(change, relation, as: request.target(of: relation.table), tag: request.tag)
        var body = ByteWriter(capacity: 512)
        message.append(to: &body, on: settings.channel, isPrivate: settings.isPrivate)
        if count >= Limits.maximumReplayMessages
            || (count > 0 && messages.count + body.count > Limits.maximumReplayBytes)
        {
            try send()
        }
        if count > 0 { messages.append(",") }
        first = first ?? (change.offset, relation.table)
        messages.append(body.bytes)
        count += 1
    }

    public func commit() throws { try send() }

    public func rollBack() { clear() }

    private func clear() {
        messages = ByteWriter(capacity: 4096)
        count = 0
        first = nil
    }

    private func send() throws {
        guard count > 0, let first else { return }
        var body = ByteWriter(capacity: messages.count + 16)
        body.append("{\"messages\":[")
        body.append(messages.bytes)
        body.append("]}")
        clear()
        let bytes = body.bytes.copied()
        for _ in 0..<Limits.maximumReplayAttempts {
            let answer = try http.post("broadcast", bytes)
            switch answer.status {
            case 200..<300: return
            case 429: rest(Self.pause)
            case 401, 403:
                throw HubFailure("\(settings.hub) does not accept the token (HTTP \(answer.status))")
            case 413, 422:
                throw ReplayConflict(
                    offset: first.offset, table: first.table,
                    reason: "the hub does not accept it (HTTP \(answer.status))"
                )
            default: throw HubFailure("\(settings.hub) answers with HTTP \(answer.status)")
            }
        }
        throw HubFailure("\(settings.hub) has no room for more messages (HTTP 429)")
    }

    /// Nanoseconds to wait after the hub has answered that it has no room for more messages.
    private static let pause: UInt64 = 500_000_000
}

/// A change in the form that clients receive, which becomes the payload of a broadcast.
struct BroadcastChange {
    private let change: RecordedChange
    private let relation: RecordedRelation
    private let table: TableName
    private let mark: ReplayMark

    init(_ change: RecordedChange, _ relation: RecordedRelation, as table: TableName, tag: String) {
        self.change = change
        self.relation = relation
        self.table = table
        mark = ReplayMark(change, tag: tag)
    }

    func append(to writer: inout ByteWriter, on channel: String?, isPrivate: Bool) {
        add("{\"topic\":", channel ?? "replay:\(table.schema).\(table.name)", to: &writer)
        add(",\"event\":", change.operation.name, to: &writer)
        writer.append(",\"private\":\(isPrivate),\"payload\":{\"data\":{")
        add("\"schema\":", table.schema, to: &writer)
        add(",\"table\":", table.name, to: &writer)
        add(",\"commit_timestamp\":", TimeText.json(change.transaction.commitTime), to: &writer)
        add(",\"type\":", change.operation.name, to: &writer)
        writer.append(",\"columns\":[")
        for (index, column) in relation.relation.columns.enumerated() {
            add((index > 0 ? "," : "") + "{\"name\":", column.name, to: &writer)
            add(",\"type\":", column.typeName, to: &writer)
            writer.append("}")
        }
        writer.append("]")
        if !change.new.isEmpty {
            writer.append(",\"record\":")
            append(change.new.indices.map { ($0, change.value(of: $0)) }, to: &writer)
        }
        if change.operation == .update || change.operation == .delete {
            writer.append(",\"old_record\":")
            let known = change.old.indices.map { ($0, change.oldValue(of: $0)) }
            append(known.isEmpty ? change.key.map { ($0.column, $0.value) } : known, to: &writer)
        }
        writer.append(",\"errors\":null},\"ids\":[],\"replay\":")
        writer.append(mark.json)
        writer.append("}}")
    }

    private func add(_ name: String, _ value: String, to writer: inout ByteWriter) {
        writer.append(name)
        JSONText.appendString(value, to: &writer)
    }

    /// Appends values as a JSON object, each under the name of its column. Leaves unknown values out.
    private func append(_ values: [(Int, RowValue?)], to writer: inout ByteWriter) {
        writer.append("{")
        var isFirst = true
        for (column, value) in values {
            guard let json = value?.json(relation.renderings[column]) else { continue }
            add(isFirst ? "" : ",", relation.relation.columns[column].name, to: &writer)
            writer.append(":" + json)
            isFirst = false
        }
        writer.append("}")
    }
}
