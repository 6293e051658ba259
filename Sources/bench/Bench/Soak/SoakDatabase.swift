import Crypto
import Embedded
import Examples
import Foundation
import Postgres
import Synchronization
import System
import TidewireClient

/// Private PostgreSQL with the tables of the five apps of the soak test. Its threads run SQL as the apps' APIs would:
/// with a person's role and claims.
final class SoakDatabase: Sendable {
    typealias Rows = [[String?]]

    private struct Question: Sendable {
        let sql: String
        let person: UUID?
        let answer: @Sendable (Result<Rows, any Error>) -> Void
    }

    private struct Line: Sendable {
        var questions: [Question] = []
        var isOver = false
    }

    static let threads = 3

    let secret: String
    let hubURL: String
    let policyURL: String
    private let cluster: Mutex<PrivateCluster>
    private let target: ConnectionTarget
    private let line = Mutex(Line())
    private let pulse = Pulse()
    private let workers = Mutex<[BackgroundThread]>([])

    init(directory: String, secret: String) throws {
        self.secret = secret
        var options = PrivateCluster.Options()
        options.isThrowaway = true
        options.settings = ["max_wal_size=512MB", "jit=off"]
        let cluster = try PrivateCluster(directory: directory, options: options)
        try cluster.start()
        target = cluster.target()
        let connection = try cluster.connect()
        for file in SQLFile.foundation + SQLFile.scenarios { try file.apply(connection) }
        for role in ["tidewire", "tidewire_policies"] {
            try connection.execute("ALTER ROLE \(role) PASSWORD '\(secret)'")
        }
        hubURL = cluster.url(user: "tidewire", password: secret)
        policyURL = cluster.url(user: "tidewire_policies", password: secret)
        self.cluster = Mutex(cluster)
        for number in 0..<Self.threads {
            let worker = try BackgroundThread("soak \(number)") { [self] in work() }
            workers.withLock { $0.append(worker) }
        }
    }

    func close() {
        line.withLock { $0.isOver = true }
        pulse.beat()
        for worker in workers.withLock({ $0 }) { worker.join() }
        cluster.withLock { $0.stop() }
    }

    // MARK: Questions

    /// Runs the SQL as a person, under the policies. If `person` is nil, runs it as the superuser.
    func ask(_ sql: String, as person: UUID? = nil) async throws -> Rows {
        try await withCheckedThrowingContinuation { continuation in
            let question = Question(sql: sql, person: person) { continuation.resume(with: $0) }
            line.withLock { $0.questions.append(question) }
            pulse.beat()
        }
    }

    private func work() {
        var connection: Connection?
        while true {
            let seen = pulse.value
            let (question, isOver) = line.withLock { line in
                (line.questions.isEmpty ? nil : line.questions.removeFirst(), line.isOver)
            }
            guard let question else {
                if isOver { return }
                _ = pulse.wait(beyond: seen, untilMonotonic: Clock.monotonicNanoseconds() + 1_000_000_000)
                continue
            }
            do {
                let session = try connection ?? Connection(target, applicationName: "soak")
                connection = session
                question.answer(.success(try Self.answer(question, session)))
            } catch {
                _ = try? connection?.execute("ROLLBACK")
                question.answer(.failure(error))
            }
        }
    }

    private static func answer(_ question: Question, _ connection: Connection) throws -> Rows {
        guard let person = question.person else { return try connection.execute(question.sql).values }
        let claims = #"{"role":"authenticated","sub":"\#(person.text)"}"#
        try connection.execute("BEGIN")
        try connection.execute("SELECT set_config('request.jwt.claims', '\(claims)', true)")
        try connection.execute("SET LOCAL ROLE authenticated")
        let rows = try connection.execute(question.sql).values
        try connection.execute("COMMIT")
        return rows
    }

    // MARK: The API of an app

    func token(_ person: UUID, seconds: Int) -> String {
        let end = Clock.unixMicroseconds() / 1_000_000 + Int64(seconds)
        let claims = Array(#"{"role":"authenticated","sub":"\#(person.text)","exp":\#(end)}"#.utf8)
        return JWT.sign(claims: claims.span, secret: Array(secret.utf8).span)
    }

    /// Applies a pending write of an app, as the app's API would. An app may send the same write twice, and an older
    /// write must not replace a newer one.
    func take(_ write: PendingWrite, of person: UUID) async -> OfflineWrites.Answer {
        var values = write.values
        let isLike = write.table == Like.table
        if !isLike, values["id"] == nil { values["id"] = .string(write.row) }
        let names = values.keys.sorted()
        let record =
            "jsonb_populate_record(NULL::\(write.table), \(JSONValue.object(values).json.quoted)) AS r"
        let key = isLike ? "(t.post_id, t.user_id) = (r.post_id, r.user_id)" : "t.id = r.id"
        let isNewer = values["updated_at"] == nil ? "" : " AND t.updated_at <= r.updated_at"
        do {
            switch write.kind {
            case .insert:
                let list = names.joined(separator: ", ")
                _ = try await ask(
                    "INSERT INTO \(write.table) (\(list)) SELECT \(list) FROM \(record) ON CONFLICT DO NOTHING",
                    as: person)
            case .update:
                let list = names.filter { $0 != "id" }.map { "\($0) = r.\($0)" }.joined(separator: ", ")
                _ = try await ask(
                    "UPDATE \(write.table) AS t SET \(list) FROM \(record) WHERE \(key)\(isNewer)", as: person)
                let found = try await ask("SELECT 1 FROM \(write.table) AS t, \(record) WHERE \(key)", as: person)
                if found.isEmpty { return .refused("it is gone") }
            case .delete:
                _ = try await ask("DELETE FROM \(write.table) AS t USING \(record) WHERE \(key)", as: person)
            }
            return .done
        } catch let error as PostgresError where error.sqlState != nil {
            return .refused("\(error)")
        } catch {
            return .later
        }
    }
}

extension UUID {
    var text: String { uuidString.lowercased() }
}

extension String {
    /// Text as a literal of SQL.
    var quoted: String { "'" + replacing("'", with: "''") + "'" }
}

/// Hub as operators run it. The soak test starts it always on the same port and data.
final class SoakHub: Sendable {
    private static let slot = "soak"

    let port: UInt16
    private let database: SoakDatabase
    private let place: String
    private let current = Mutex<(process: HubProcess, starts: Int)?>(nil)

    init(_ database: SoakDatabase, place: String) throws {
        self.database = database
        self.place = place
        port = UInt16(try FreePort.find())
        try Directories.make(place + "/hub")
    }

    func start() throws {
        try current.withLock { current in
            let starts = (current?.starts ?? 0) + 1
            let process = try HubProcess(
                [
                    "--slot", Self.slot, "--data-dir", place + "/hub", "--listen", "127.0.0.1:\(port)",
                    "--log-format", "text",
                ],
                environment: [
                    "TIDEWIRE_DATABASE_URL": database.hubURL, "TIDEWIRE_POLICY_DATABASE_URL": database.policyURL,
                    "TIDEWIRE_JWT_SECRET": database.secret,
                ], log: place + "/hub-\(starts).log")
            current = (process, starts)
        }
    }

    func end(_ signal: Int32) {
        current.withLock { current in
            current?.process.signal(signal)
            current?.process.wait(milliseconds: 60_000)
        }
    }

    var isRunning: Bool { current.withLock { $0?.process.isRunning ?? false } }

    func close() {
        current.withLock { current in
            current?.process.stop()
            current = nil
        }
    }

    /// SQL that drops the slot, so that the history has a gap when the hub returns.
    static let dropSlot =
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '\(slot)'"
}
