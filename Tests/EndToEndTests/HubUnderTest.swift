import Bytes
import Change
import EventLog
import Foundation
import Postgres
import Replication
import Server
import System
import TestSupport
/// End-to-end tests of each group run one after another, because they share two cores and one PostgreSQL.
import Testing

@testable import Ingest

/// Change in the log as plain values, which a test can compare and a failure message can show.
struct LoggedChange: Equatable, CustomStringConvertible {
    var operation: String
    var table: String
    /// Text of each column by name; nil is NULL. An unchanged large value is `unchanged`, which no test uses as text.
    var new: [String: String?]
    var old: [String: String?]
    var oldImage: OldImage
    var xid: UInt32
    var commitLSN: LSN
    var offset: UInt64
    var epoch: UInt64
    var types: [String: String]

    static let unchanged = "\u{0}unchanged"

    var description: String { "@\(offset) \(operation) \(table) \(new) was \(old)" }
}

/// Changes and gaps in the log, in order.
struct LoggedHistory {
    var changes: [LoggedChange] = []
    var gaps: [Gap] = []
    var entries = 0

    func changes(of table: String) -> [LoggedChange] { changes.filter { $0.table == table } }

    /// Reads the log's directory as another process would.
    static func read(_ logDirectory: String) throws -> LoggedHistory {
        guard FileManager.default.fileExists(atPath: logDirectory) else { return LoggedHistory() }
        return try read(DiskDirectory(logDirectory))
    }

    static func read(_ directory: any StorageDirectory) throws -> LoggedHistory {
        var history = LoggedHistory()
        var relations: [UInt64: Relation] = [:]
        var reader: EventLogReader
        do throws(EventLogError) {
            reader = try EventLogReader(directory: directory)
        } catch {
            if case .missing = error { return history }
            throw error
        }
        while try reader.next() {
            history.entries += 1
            let entry = reader.entry
            switch entry.kind {
            case .relation:
                let relation = try RelationCodec.decode(reader.payload)
                relations[RelationCodec.fingerprint(of: reader.payload)] = relation
            case .gap: history.gaps.append(try GapCodec.decode(reader.payload))
            case .transaction:
                try history.add(reader.payload, entry, relations)
            default: break
            }
        }
        return history
    }

    private mutating func add(_ payload: RawSpan, _ entry: EventLogEntry, _ relations: [UInt64: Relation]) throws {
        var part = try TransactionPart(payload)
        let info = part.info
        var offset = entry.offset
        while let change = try part.next() {
            let relation = relations[change.relation]
            if change.operation != .message, relation == nil {
                throw ByteError(expected: "a schema before its rows", offset: 0)
            }
            var logged = LoggedChange(
                operation: change.operation.name, table: relation.map { $0.schema + "." + $0.name } ?? "",
                new: [:], old: [:], oldImage: change.oldImage, xid: info.xid, commitLSN: info.commitLSN, offset: offset,
                epoch: entry.epoch,
                types: Dictionary(uniqueKeysWithValues: relation?.columns.map { ($0.name, $0.typeName) } ?? []))
            if change.operation == .message {
                logged.table = change.messagePrefix.text
                logged.new = ["content": change.messageContent.text]
            } else if let relation {
                logged.new = try Self.values(change.new, relation)
                logged.old = try Self.values(change.old, relation)
            }
            changes.append(logged)
            offset += 1
        }
    }

    private static func values(_ tuple: borrowing Tuple?, _ relation: Relation) throws -> [String: String?] {
        guard let tuple = copy tuple else { return [:] }
        var values: [String: String?] = [:]
        var columns = tuple.columns()
        for column in relation.columns {
            guard let value = try columns.next() else { break }
            switch value {
            case .null: values[column.name] = .some(nil)
            case .unchanged: values[column.name] = LoggedChange.unchanged
            case .text(let text), .binary(let text): values[column.name] = text.text
            }
        }
        return values
    }
}

/// Ingest service of a hub, which runs in this process on its own database.
final class HubUnderTest {
    let database: TestDatabase
    let dataDirectory: String
    var settings: IngestService.Settings
    private(set) var service: IngestService?

    init(_ database: TestDatabase, _ change: (inout IngestService.Settings) -> Void = { _ in }) throws {
        self.database = database
        dataDirectory = TemporaryDirectory.make("data")
        settings = IngestService.Settings(
            replication: ReplicationSettings(target: database.target, slot: database.slot),
            dataDirectory: dataDirectory,
            segmentBytes: 1 << 20)
        change(&settings)
    }

    /// Drops the replication slot, because the cluster has few slots.
    deinit {
        stop()
        for _ in 0..<50 {
            let drop =
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
            if (try? database.run(drop)) != nil { return }
            usleep(20_000)
        }
    }

    var logDirectory: String { IngestService.Settings.logDirectory(dataDirectory) }

    func start(awaitingStream: Bool = true) throws {
        service = try IngestService(settings)
        if awaitingStream { try eventually("streaming") { service?.status.isStreaming == true } }
    }

    func stop() {
        service?.stop()
        service = nil
    }

    func history() throws -> LoggedHistory { try LoggedHistory.read(logDirectory) }

    /// Waits until the log has everything that the database has done so far. The test emits a message, which follows in
    /// the same stream, and waits for the message.
    @discardableResult
    func caughtUp(on connection: Connection? = nil) throws -> LoggedHistory {
        let mark = "mark-\(UInt64.random(in: 0 ... .max))"
        try (connection ?? database.connection).query("SELECT pg_logical_emit_message(true, 'test', $1)", [mark])
        var found = LoggedHistory()
        try eventually("the log to catch up") {
            found = try history()
            return found.changes.contains { $0.operation == "MESSAGE" && $0.new["content"] == mark }
        }
        found.changes.removeAll { $0.operation == "MESSAGE" && $0.table == "test" }
        return found
    }
}

struct TookTooLong: Error, CustomStringConvertible {
    var description: String
}

/// Waits until other threads have made a condition true. The limit only ends a test that would otherwise hang.
func eventually(_ what: String, seconds: Int = 180, _ condition: () throws -> Bool) throws {
    for _ in 0..<seconds * 50 {
        if try condition() { return }
        usleep(20_000)
    }
    throw TookTooLong(description: "waited \(seconds) s for \(what)")
}

/// Groups of tests: one for the hub's own parts, one for the programs around it.
@Suite(.serialized, .inChain(minutes: 30)) enum EndToEnd {}
@Suite(.serialized, .inChain(minutes: 30)) enum EndToEndPrograms {}
