import Bytes
import Diagnostics
import Postgres
import System
import TestSupport
import Testing

@testable import Replication

@Suite(.within(minutes: 5)) struct TroubleTests {
    struct Case: Sendable, CustomTestStringConvertible {
        /// Error text of libpq or the server.
        var testDescription: String
        var sqlState: String?
        var operation = "connect"
        var reason: ProjectMetrics.ReconnectReason
        /// Text that the hint must contain.
        var hint: String
    }

    static let refusals: [Case] = [
        Case(
            testDescription: #"FATAL:  password authentication failed for user "hub""#, sqlState: "28P01",
            reason: .authentication, hint: "TIDEWIRE_DATABASE_URL"),
        Case(
            testDescription: #"SCHWERWIEGEND:  Passwort-Authentifizierung für Benutzer »hub« fehlgeschlagen"#,
            sqlState: "28P01", reason: .authentication, hint: "DB_PASSWORD"),
        Case(
            testDescription: #"FATAL:  no pg_hba.conf entry for replication connection from host "10.0.0.1""#,
            sqlState: "28000", reason: .authentication, hint: "pg_hba.conf"),
        Case(
            testDescription: "FATAL:  must be superuser or replication role to start walsender", sqlState: "42501",
            reason: .authentication, hint: "REPLICATION"),
        Case(
            testDescription: #"FATAL:  database "nowhere" does not exist"#, sqlState: "3D000", reason: .other,
            hint: "DB_NAME"),
        Case(
            testDescription: #"FATAL:  role "nobody" does not exist"#, sqlState: "28000", reason: .authentication,
            hint: "DB_USER"),
        Case(
            testDescription: #"connection to server at "127.0.0.1", port 5432 failed: Connection refused"#,
            reason: .connectionRefused, hint: "running"),
        Case(
            testDescription: "FATAL:  the database system is starting up", sqlState: "57P03",
            reason: .connectionRefused,
            hint: "running"),
        Case(
            testDescription: #"root certificate file "/home/hub/.postgresql/root.crt" does not exist"#,
            reason: .authentication, hint: "sslrootcert"),
        Case(
            testDescription: "server does not support SSL, but SSL was required", reason: .connectionRefused,
            hint: "sslmode"),
        Case(
            testDescription: #"FATAL:  too many connections for role "hub""#, sqlState: "53300",
            reason: .connectionRefused, hint: "two connections"),
        Case(
            testDescription: #"FATAL:  permission denied for database "app""#, sqlState: "42501",
            reason: .authentication, hint: "GRANT CONNECT"),
    ]

    static let answers: [Case] = [
        Case(
            testDescription: #"replication slot "hub_slot" is active for PID 42"#, sqlState: "55006",
            operation: "START_REPLICATION", reason: .slotBusy, hint: "hub_slot"),
        Case(
            testDescription: "all replication slots are in use", sqlState: "53400",
            operation: "CREATE_REPLICATION_SLOT", reason: .other, hint: "max_replication_slots"),
    ]

    @Test(arguments: refusals + answers)
    func `is told with what to do about it`(wanted: Case) {
        let error = PostgresError(
            operation: wanted.operation, sqlState: wanted.sqlState, message: wanted.testDescription)
        let trouble = StreamFailure.from(error, settings)
        #expect(trouble.reason == wanted.reason)
        #expect(trouble.message.contains(wanted.testDescription))
        #expect(trouble.hint?.contains(wanted.hint) == true)
        #expect(trouble.sqlState == wanted.sqlState)
    }

    @Test func `a password that is wanted and not there is told from a server that is not there`() {
        var error = PostgresError(
            operation: "connect", message: "fe_sendauth: no password supplied", isConnectionLost: true)
        #expect(StreamFailure(connecting: error).reason == .connectionRefused)
        error.lacksPassword = true
        let trouble = StreamFailure(connecting: error)
        #expect(trouble.reason == .authentication && trouble.hint?.contains("DB_PASSWORD") == true)
    }

    @Test func `a server that refuses for a reason of its own is not asked whether it runs`() {
        let error = PostgresError(operation: "connect", sqlState: "XX000", message: "FATAL:  Tenant or user not found")
        #expect(StreamFailure(connecting: error).hint == nil)
    }

    @Test func `a lost connection is told apart from a refusal`() {
        let lost = PostgresError(operation: "COPY", message: "server closed the connection", isConnectionLost: true)
        #expect(StreamFailure.from(lost, settings).reason == .connectionLost)
        let refused = PostgresError(operation: "query", sqlState: "42501", message: "permission denied", hint: "ask")
        #expect(StreamFailure.from(refused, settings).reason == .other)
        #expect(StreamFailure.from(refused, settings).hint == "ask")
    }

    @Test func `bytes that are no pgoutput are the protocol's trouble`() {
        let errors: [any Error] = [
            ByteError(expected: "a number", offset: 4), SchemaBook.Refusal.unknownRelation(16_384),
            SchemaBook.Refusal.tooMany, TransactionAssembler.Refusal.unexpected("Begin inside a transaction"),
            TransactionSpool.TooMany(),
        ]
        let troubles = errors.map { StreamFailure.from($0, settings) }
        #expect(troubles.allSatisfy { $0.reason == .protocolError })
        #expect(troubles[0].message.contains("expected a number at byte 4"))
        #expect(troubles[1].message.contains("16384"))
        #expect(troubles[3].message.contains("Begin inside a transaction"))
        #expect(troubles[4].hint?.contains("streaming") == true)
    }

    @Test func `a disk that does not take what it must is told in words`() {
        let stall = StorageStall(operation: "fsync", path: "/data/log", reason: "No space left", hint: "free space")
        let trouble = StreamFailure.from(stall, settings)
        #expect(trouble.reason == .diskStall && trouble.hint == "free space")
        #expect(trouble.message == "fsync /data/log: No space left")
        let error = SystemError(operation: "open", subject: "spool/8.spool", code: 28)
        #expect(StreamFailure.from(error, settings).message == "open spool/8.spool: No space left on device")
    }

    @Test func `trouble that is known already passes unchanged`() {
        let trouble = StreamFailure.from(StreamFailure(.slotMissing, "gone", hint: "make it"), settings)
        #expect(trouble.reason == .slotMissing && trouble.message == "gone" && trouble.hint == "make it")
    }

    private var settings: ReplicationSettings {
        ReplicationSettings(target: ConnectionTarget("postgres://localhost/x"), slot: "hub_slot")
    }
}
