import Crypto
import Embedded
import Examples
import Foundation
import Postgres
import Synchronization
import System
import TestSupport
import Testing
import TidewireClient

/// Hub program on a fixed port, so that clients find the same address after a restart.
final class HubForApps: Sendable {
    static let secret = "a secret of the tests, which is longer than thirty-two bytes"

    let target: ConnectionTarget
    let databaseURL: String
    let policyURL: String
    let slot: String
    let port: UInt16
    let dataDirectory = TemporaryDirectory.make("data")
    private let options: [String: String]
    private let process = Mutex<ChildProcess?>(nil)

    init(_ options: [String: String] = [:]) throws {
        let database = try TestDatabase()
        for file in SQLFile.foundation + SQLFile.scenarios { try file.apply(database.connection) }
        (target, databaseURL, slot) = (database.target, database.url, database.slot)
        policyURL = try database.documentedLogins(becoming: ["authenticated"]).policyURL
        port = try Self.freePort()
        self.options = options
    }

    deinit {
        kill()
        try? letGo()
    }

    private static func freePort() throws -> UInt16 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let found = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(descriptor, address, length) == 0 && getsockname(descriptor, address, &length) == 0
            }
        }
        try #require(found)
        return UInt16(bigEndian: address.sin_port)
    }

    func start() throws {
        var environment = options
        environment["TIDEWIRE_DATABASE_URL"] = databaseURL
        environment["TIDEWIRE_POLICY_DATABASE_URL"] = policyURL
        environment["TIDEWIRE_JWT_SECRET"] = Self.secret
        let started = try ChildProcess(
            [
                ServedHub.program, "serve", "--data-dir", dataDirectory, "--slot", slot, "--listen",
                "127.0.0.1:\(port)",
            ],
            output: dataDirectory + "/serve.log", environment: environment)
        process.withLock { $0 = started }
    }

    func signal(_ number: Int32) { process.withLock { $0?.signal(number) } }

    /// Ends the hub without a shutdown, like `kill -9`.
    func kill() {
        process.withLock { process in
            process?.signal(SIGKILL)
            process?.wait()
            process = nil
        }
    }

    /// Drops the replication slot, so that the history has a gap when the hub starts again.
    func letGo() throws {
        try eventually("the slot to be let go") {
            (try? ask(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '\(slot)'"
            )) != nil
        }
    }

    func token(_ person: UUID, seconds: Int = 3600) -> String {
        let end = Int(Date().timeIntervalSince1970) + seconds
        let claims = #"{"role":"authenticated","sub":"\#(person.uuidString.lowercased())","exp":\#(end)}"#
        return JWT.sign(claims: Array(claims.utf8).span, secret: Array(Self.secret.utf8).span)
    }

    /// Secret for operator tokens, for a hub whose settings name this secret.
    static let operatorSecret = "a secret of operators, which is longer than thirty-two bytes"
    static var operatorToken: String { operatorToken() }

    /// - Parameter more: further claims, each with a comma before it.
    static func operatorToken(_ more: String = "") -> String {
        let end = Int(Date().timeIntervalSince1970) + 3600
        let claims = #"{"role":"service_role","sub":"ops@example.com","exp":\#(end)\#(more)}"#
        return JWT.sign(claims: Array(claims.utf8).span, secret: Array(operatorSecret.utf8).span)
    }

    /// Returns a client that is signed in as `person`. By default it uses the real transport of this computer.
    func client(_ person: UUID, token: String? = nil, transport: any Transport = systemTransport()) -> Tidewire {
        let scheme = options["TIDEWIRE_TLS_CERTIFICATE"] == nil ? "http" : "https"
        let url = URL(string: "\(scheme)://127.0.0.1:\(port)") ?? URL(fileURLWithPath: "/")
        return Tidewire(
            url: url, key: self.token(UUID()), token: token ?? self.token(person),
            seams: TidewireSeams(transport: transport))
    }

    /// Runs `sql` in a session of its own, because several threads call this at the same time.
    func ask(_ sql: String) throws -> [[String?]] { try Connection(target).execute(sql).values }
}

private let ana = UUID(uuidString: "00000000-0000-4000-8000-00000000A0A0") ?? UUID()
private let ben = UUID(uuidString: "00000000-0000-4000-8000-00000000BE00") ?? UUID()

private struct Reminder: LiveRow {
    static let table = "reminders"
    let id: UUID
    let message: String
    let amount: Decimal?

    struct Columns: Sendable { let message = LiveColumn<String>("message") }
    static let columns = Columns()
}

extension EndToEndPrograms {
    /// Tests of the library for apps against the hub program itself.
    @Suite(.serialized) struct AppLibraryTests {
        private func remind(_ hub: HubForApps, _ message: String, _ owner: UUID = ana) throws {
            _ = try hub.ask("INSERT INTO reminders (owner_id, message, amount) VALUES ('\(owner)', '\(message)', 1.50)")
        }

        @Test func `what is committed while the hub is killed and away comes once and in order`() throws {
            let hub = try HubForApps()
            try hub.start()
            let messages = try onThisThread {
                var batches = hub.client(ana).live(Reminder.self, window: .immediate).makeAsyncIterator()
                while let batch = await batches.next(), !batch.isCaughtUp {}
                try remind(hub, "1")
                try remind(hub, "of somebody else", ben)
                var messages: [String] = []
                while messages.count < 3, let batch = await batches.next() {
                    #expect(batch.problems.isEmpty && batch.refetchReason == nil)
                    for change in batch.changes {
                        messages.append(change.row?.message ?? "")
                        #expect(change.row?.amount == Decimal(string: "1.5"))
                    }
                    if messages.last == "1" {
                        hub.kill()
                        try remind(hub, "2")
                        try hub.start()
                        try remind(hub, "3")
                    }
                }
                return messages
            }
            #expect(messages == ["1", "2", "3"])
        }

        @Test func `an app goes on where it had saved, and fetches where history has a gap`() throws {
            let hub = try HubForApps()
            try hub.start()
            try onThisThread {
                var position: LogPosition?
                do {
                    var batches = hub.client(ana).live(Reminder.self, window: .immediate).makeAsyncIterator()
                    while position == nil { position = await batches.next()?.position }
                }
                try remind(hub, "while it was not running")
                let saved = position
                var again = hub.client(ana).live(
                    Reminder.self, after: saved, window: .immediate, snapshot: false
                ).makeAsyncIterator()
                var came: [String] = []
                while came.isEmpty { came += await again.next()?.changes.compactMap(\.row?.message) ?? ["nothing"] }
                #expect(came == ["while it was not running"])
                hub.kill()
                try hub.letGo()
                try hub.start()
                var reason: RefetchReason?
                while reason == nil { reason = await again.next()?.refetchReason }
                // A client that returns before the hub has found the slot missing receives the gap. A later one
                // receives the new epoch.
                let isTold =
                    switch reason {
                    case .epochChanged, .changesMissing: true
                    default: false
                    }
                #expect(isTold, "\(String(describing: reason))")
            }
        }

        @Test func `a token that ends is a state, and the next one goes on where the first was`() throws {
            let hub = try HubForApps()
            try hub.start()
            try onThisThread {
                let tidewire = hub.client(ana)
                var batches = tidewire.live(Reminder.self, window: .immediate).makeAsyncIterator()
                while let batch = await batches.next(), !batch.isCaughtUp {}
                // The client signs in late. On a busy machine, a short-lived token could otherwise expire before the
                // changes that the test waits for arrive.
                tidewire.signIn(token: hub.token(ana, seconds: 2))
                var code: String?
                for await state in tidewire.states where code == nil {
                    if case .offline(.tokenRefused(let problem)) = state { code = problem.code }
                    if code != nil { break }
                }
                #expect(code == "TokenExpired")
                try remind(hub, "in between")
                tidewire.signIn(token: hub.token(ana))
                var came: [String] = []
                while came.isEmpty, let batch = await batches.next() {
                    came += batch.changes.compactMap(\.row?.message)
                }
                #expect(came == ["in between"])
            }
        }

        @Test func `a query begins with the rows there are, and begins anew where history has a gap`() throws {
            let hub = try HubForApps()
            for message in ["1", "2"] { try remind(hub, message) }
            try remind(hub, "of somebody else", ben)
            try hub.start()
            try onThisThread {
                let tidewire = hub.client(ana)
                var batches = tidewire.live(Reminder.self, window: .immediate).makeAsyncIterator()
                var told: [[String]] = []
                // A row that is written during the snapshot arrives among its rows or as a later change, but never as
                // both.
                try remind(hub, "3")
                while told.joined().count < 3, let batch = await batches.next() {
                    #expect(batch.problems.allSatisfy { $0.severity == .warning })
                    if let rows = batch.rows { told.append(rows.map(\.message).sorted()) }
                    if !batch.changes.isEmpty { told.append(batch.changes.compactMap(\.row?.message)) }
                }
                #expect(told.joined().sorted() == ["1", "2", "3"])

                // A later subscriber receives its own copy of the rows. Then both share one subscription again.
                var later = tidewire.live(Reminder.self, window: .immediate).makeAsyncIterator()
                var rows: Int?
                while rows == nil { rows = await later.next()?.rows?.count }
                #expect(rows == 3)

                hub.kill()
                try hub.letGo()
                _ = try hub.ask("DELETE FROM reminders WHERE message = '2'")
                try hub.start()
                var again: [String]?
                while again == nil { again = await batches.next()?.rows?.map(\.message).sorted() }
                #expect(again == ["1", "3"])
                try remind(hub, "4")
                var came: [String] = []
                while came.isEmpty { came += await batches.next()?.changes.compactMap(\.row?.message) ?? ["nothing"] }
                #expect(came == ["4"])
            }
        }

        /// Simulates a busy database: PostgreSQL creates a slot only after all earlier transactions have ended.
        @Test func `who begins before the hub has anything to follow has all rows when it has`() throws {
            let hub = try HubForApps()
            try remind(hub, "1")
            let busy = try Connection(hub.target)
            defer { withExtendedLifetime(busy) {} }
            _ = try busy.execute("BEGIN; SELECT pg_current_xact_id()")
            let busyProcess = try #require(try busy.execute("SELECT pg_backend_pid()").values[0][0])
            try hub.start()
            try onThisThread {
                let tidewire = hub.client(ana)
                var batches = tidewire.live(Reminder.self, window: .immediate).makeAsyncIterator()
                let tables = tidewire.changes(of: [TableBinding(table: "reminders")]).makeAsyncIterator()
                var codes: [String] = []
                while codes.isEmpty, let batch = await batches.next() {
                    #expect(batch.refetchReason == nil && batch.rows == nil)
                    codes += batch.problems.map(\.code)
                }
                #expect(codes == ["LogNotBegun"])
                try remind(hub, "2")
                _ = try hub.ask("SELECT pg_terminate_backend(\(busyProcess))")
                var told: [String]?
                while told == nil, let batch = await batches.next() {
                    #expect(batch.refetchReason == nil && batch.changes.isEmpty)
                    told = batch.rows?.map(\.message).sorted()
                }
                #expect(told == ["1", "2"])
                // A subscriber that fetches its rows itself receives a notice to fetch, and after it every change.
                var refetchReason: RefetchReason?
                while let batch = await tables.next() {
                    refetchReason = batch.refetchReason ?? refetchReason
                    if batch.isCaughtUp { break }
                }
                if case .changesMissing = refetchReason {} else { Issue.record("\(String(describing: refetchReason))") }
                try remind(hub, "3")
                var came: [String] = []
                while came.isEmpty { came += await batches.next()?.changes.compactMap(\.row?.message) ?? ["nothing"] }
                #expect(came == ["3"])
            }
        }

        @Test func `changes over HTTP, in pages, from a position that a subscription saved`() throws {
            let hub = try HubForApps()
            try hub.start()
            try onThisThread {
                let tidewire = hub.client(ana)
                var position: LogPosition?
                do {
                    var batches = tidewire.live(Reminder.self, window: .immediate).makeAsyncIterator()
                    while let batch = await batches.next(), !batch.isCaughtUp { position = batch.position ?? position }
                }
                for number in 1...5 { try remind(hub, "\(number)") }
                try remind(hub, "of somebody else", ben)
                var came: [String] = []
                while came.count < 5 {
                    let page = try await tidewire.fetchChanges(after: position, of: Reminder.self, limit: 2)
                    #expect(page.refetchReason == nil && page.problems.isEmpty && page.unreadableRows.isEmpty)
                    came += page.changes.compactMap(\.row?.message)
                    position = page.position
                }
                #expect(came == ["1", "2", "3", "4", "5"])
                let lost = try await tidewire.fetchChanges(after: LogPosition("00000000000000aa.1"), of: Reminder.self)
                #expect(lost.refetchReason == .epochChanged && lost.position != nil)
                let refusal = await #expect(throws: TidewireProblem.self) {
                    try await tidewire.fetchChanges(
                        after: position, of: [TableBinding(table: "reminders", filter: "nothing=eq.1")])
                }
                #expect(refusal?.code == "InvalidFilter")
            }
        }

        /// True unless the problem only reports that a new hub has no log yet.
        private func isOfBinding(_ problem: TidewireProblem) -> Bool { problem.code != "LogNotBegun" }

        @Test func `problems come with the server's code`() throws {
            let hub = try HubForApps()
            try hub.start()
            _ = try hub.ask(
                "CREATE TABLE unpublished (id int PRIMARY KEY); GRANT SELECT ON unpublished TO authenticated")
            let code = try onThisThread {
                let tables = hub.client(ana).changes(of: [TableBinding(table: "unpublished")]).makeAsyncIterator()
                while let batch = await tables.next() {
                    if let problem = batch.problems.first(where: isOfBinding) { return problem.code }
                }
                return ""
            }
            #expect(code == "NotPublished")
        }

        @Test func `who can never hear anything, for want of a policy, is told so`() throws {
            let hub = try HubForApps()
            _ = try hub.ask(
                """
                CREATE TABLE silent (id int PRIMARY KEY);
                ALTER TABLE silent ENABLE ROW LEVEL SECURITY;
                GRANT SELECT ON silent TO authenticated;
                ALTER PUBLICATION supabase_realtime ADD TABLE silent
                """)
            try hub.start()
            let words = try onThisThread {
                let tables = hub.client(ana).changes(of: [TableBinding(table: "silent")]).makeAsyncIterator()
                while let batch = await tables.next() {
                    if let problem = batch.problems.first(where: isOfBinding) { return problem.message }
                }
                return ""
            }
            #expect(words.contains("no policy lets role authenticated SELECT"), "\(words)")
        }

        @Test func `a filter of the server's tells what it names, and that a row leaves it`() throws {
            let hub = try HubForApps()
            try hub.start()
            try onThisThread {
                var batches = hub.client(ana).live(
                    Reminder.self, where: \.message == "wanted", window: .immediate, snapshot: false
                ).makeAsyncIterator()
                while let batch = await batches.next(), !batch.isCaughtUp {}
                for message in ["other", "wanted"] { try remind(hub, message) }
                _ = try hub.ask("UPDATE reminders SET message = 'other' WHERE message = 'wanted'")
                var told: [String] = []
                while told.count < 2, let batch = await batches.next() {
                    for change in batch.changes {
                        if case .left = change { told.append("left") } else { told.append(change.row?.message ?? "") }
                    }
                }
                #expect(told == ["wanted", "left"])
            }
        }

        @Test func `TLS, with a certificate that is checked`() throws {
            let directory = TemporaryDirectory.make("certificate")
            let made = try ChildProcess(
                [
                    "/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes",
                    "-days", "2", "-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                    directory + "/key", "-out", directory + "/certificate",
                ], output: directory + "/output")
            try #require(made.wait() == .exited(0))
            let hub = try HubForApps([
                "TIDEWIRE_TLS_CERTIFICATE": directory + "/certificate", "TIDEWIRE_TLS_KEY": directory + "/key",
            ])
            try hub.start()
            let (message, refusal) = try onThisThread {
                let trusting = SocketTransport(trustedCertificates: directory + "/certificate")
                var batches = hub.client(ana, transport: trusting).live(Reminder.self, window: .immediate)
                    .makeAsyncIterator()
                while let batch = await batches.next(), !batch.isCaughtUp {}
                let large = String(repeating: "long ", count: 40_000)
                try remind(hub, large)
                var message: String?
                while message == nil, let batch = await batches.next() { message = batch.changes.first?.row?.message }
                // A client that does not trust the certificate's issuer refuses the certificate.
                let wary = hub.client(ana)
                let ignored = wary.live(Reminder.self).makeAsyncIterator()
                var refusal = ""
                for await state in wary.states {
                    guard case .connecting(_, _, .unreachable(let words)?) = state else { continue }
                    refusal = words
                    break
                }
                withExtendedLifetime(ignored) {}
                return (message, refusal)
            }
            #expect(message?.count == 200_000)
            #expect(refusal.contains("certificate"))
        }
    }
}
