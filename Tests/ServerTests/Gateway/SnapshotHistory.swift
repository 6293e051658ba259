import Embedded
import Foundation
import Postgres
import Synchronization
import System
import TestSupport
import Testing

/// Writer of random transactions for tests that compare snapshots with the log. Its transactions are short, long,
/// prepared, large or with savepoints, and some do not wait for the disk. Each change increases the row's `version` by
/// one. A row that is inserted again begins with a higher version.
struct SnapshotWriter {
    static let rowsEach = 12
    static let tables = """
        CREATE TABLE items (id int PRIMARY KEY, owner uuid, version int NOT NULL, body text);
        CREATE SEQUENCE births;
        ALTER TABLE items REPLICA IDENTITY FULL; ALTER TABLE items ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON items FOR SELECT USING (owner = auth.uid());
        GRANT SELECT ON items TO READER;
        """ + fences
    static let fences = "CREATE TABLE fences (id int PRIMARY KEY); GRANT SELECT ON fences TO READER;"

    let number: Int
    private let connection: Connection
    private var random: SeededRandom
    private var transactions = 0

    init(_ number: Int, _ stage: GatewayStage, seed: UInt64) throws {
        self.number = number
        connection = try stage.database.cluster.connect(database: stage.database.name)
        random = SeededRandom(seed: seed &* 31 &+ UInt64(number))
    }

    mutating func write(until end: Bell) throws {
        while !end.rang { try step() }
    }

    private mutating func step() throws {
        try connection.execute("SET synchronous_commit = \(random.pick(["on", "off", "local"]))")
        switch Int.random(in: 0..<12, using: &random) {
        case 0..<5: try connection.execute(change())
        case 5..<7: try transaction(resting: 0...3)
        case 7: try transaction(resting: 20...120)
        case 8..<10: try savepoints()
        case 10: try prepared()
        default: try large()
        }
        transactions += 1
    }

    private mutating func rest(_ milliseconds: ClosedRange<UInt64>) {
        BackgroundThread.rest(nanoseconds: UInt64.random(in: milliseconds, using: &random) * 1_000_000)
    }

    /// Returns a change of one of the writer's own rows.
    private mutating func change(body: Int = 10) -> String {
        let id = number * Self.rowsEach + Int.random(in: 0..<Self.rowsEach, using: &random)
        let owner = GatewayStage.user(Int.random(in: 1...2, using: &random))
        let text = String(repeating: "x", count: body)
        switch Int.random(in: 0..<8, using: &random) {
        case 0: return "DELETE FROM items WHERE id = \(id)"
        case 1: return "UPDATE items SET version = version + 1, owner = '\(owner)' WHERE id = \(id)"
        default:
            return """
                INSERT INTO items VALUES (\(id), '\(owner)', nextval('births') * 100000, '\(text)')
                ON CONFLICT (id) DO UPDATE SET version = items.version + 1, body = excluded.body
                """
        }
    }

    private mutating func transaction(resting time: ClosedRange<UInt64>) throws {
        try connection.execute("BEGIN")
        for _ in 0..<Int.random(in: 1...4, using: &random) {
            try connection.execute(change())
            rest(time)
        }
        try connection.execute(random.pick(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
    }

    private mutating func savepoints() throws {
        try connection.execute("BEGIN; \(change()); SAVEPOINT a; \(change()); SAVEPOINT b; \(change())")
        rest(0...3)
        try connection.execute(random.pick(["ROLLBACK TO b", "ROLLBACK TO a", "RELEASE a"]))
        try connection.execute("\(change()); COMMIT")
    }

    private mutating func prepared() throws {
        let name = "w\(number)_\(transactions)"
        try connection.execute("BEGIN; \(change()); \(change()); PREPARE TRANSACTION '\(name)'")
        rest(0...60)
        try connection.execute("\(random.pick(["COMMIT", "COMMIT", "ROLLBACK"])) PREPARED '\(name)'")
    }

    /// Runs a transaction that is so large that the server streams it before it commits.
    private mutating func large() throws {
        try connection.execute("BEGIN")
        for _ in 0..<12 { try connection.execute(change(body: 8000)) }
        rest(0...20)
        try connection.execute("COMMIT")
    }
}

/// Table as a client knows it, from the rows and changes that it received. The replica records each change that is
/// repeated, out of order or missing.
struct SnapshotReplica {
    private(set) var rows: [Int: [String: Any]] = [:]
    private var versions: [Int: Int] = [:]
    private(set) var told = 0
    private(set) var changes = 0
    private(set) var wrong: [String] = []
    var completeRows: Int?

    mutating func take(_ message: Message) {
        if message.data["tidewire"] as? [String: Bool] == ["snapshot": true] { return takeExisting(message) }
        changes += 1
        switch message.type {
        case "INSERT":
            note(rows[message.id ?? -1] == nil, "an insert of a row that is there", message)
            put(message, isNew: true)
        case "UPDATE": put(message, isNew: rows[message.id ?? -1] == nil)
        case "DELETE":
            let id = message.old["id"] as? Int ?? -1
            note(rows[id] != nil, "a delete of a row that is not there", message)
            rows[id] = nil
        default: note(false, "a change that is none", message)
        }
    }

    private mutating func takeExisting(_ message: Message) {
        told += 1
        note(message.type == "INSERT" && completeRows == nil && changes == 0, "a row behind a change", message)
        note(rows[message.id ?? -1] == nil, "a row that is told twice", message)
        put(message, isNew: true)
    }

    private mutating func put(_ message: Message, isNew: Bool) {
        guard let id = message.id, let version = message.record["version"] as? Int else {
            return note(false, "a row without key or version", message)
        }
        let before = versions[id] ?? -1
        note(isNew ? version > before : version == before + 1, "version \(version) behind \(before)", message)
        versions[id] = version
        rows[id] = message.record
    }

    private mutating func note(_ holds: Bool, _ rule: String, _ message: Message) {
        if !holds { wrong.append("\(rule): \(message.data["type"] ?? "") \(message.id ?? -1)") }
    }
}

/// Client that begins with a snapshot, and then receives changes until the test tells it to end.
final class SnapshotHearer: @unchecked Sendable {
    // Only one thread at a time uses a property. The caller receives on one thread and sends on another.
    let user: Int
    private let caller: Caller
    private(set) var replica = SnapshotReplica()
    private(set) var failure: String?

    init(user: Int, _ stage: GatewayStage) throws {
        self.user = user
        caller = try stage.caller()
    }

    /// Sends a heartbeat. Another thread calls this while the caller receives.
    func beat() { try? caller.say(#"[null,"0","phoenix","heartbeat",{}]"#) }

    static func wish(_ table: String, event: String = "*", filter: String? = nil) -> String {
        binding(table, event, filter: filter).dropLast() + #","tidewire":{"snapshot":true,"moves":true}}"#
    }

    func join(_ stage: GatewayStage) throws {
        try caller.push(
            "realtime:a", "phx_join",
            Caller.join([Self.wish("items"), binding("fences")], token: stage.token(of: user)))
    }

    func hear(upTo last: Int) {
        do {
            while true {
                let message = try caller.next()
                if message.event == "system", try !take(system: message) { return }
                guard message.event == "postgres_changes" else { continue }
                if message.data["table"] as? String == "fences" {
                    if message.id ?? 0 >= last { return }
                } else {
                    replica.take(message)
                }
            }
        } catch {
            failure = "\(error)"
        }
    }

    private func take(system message: Message) throws -> Bool {
        switch message.payload["code"] as? String {
        case "SnapshotComplete"?:
            replica.completeRows = message.payload["rows"] as? Int
            return true
        case "SnapshotFailed"?, "ChangesMissing"?:
            failure = message.said
            return false
        default: return true
        }
    }
}
