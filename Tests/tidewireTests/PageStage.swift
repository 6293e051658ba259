import Embedded
import Foundation
import Postgres
import System
import TestSupport

/// Environment for the code blocks of the documentation pages. It has a database prepared as the pages state, with a
/// table `orders` that has past changes, and a hub that follows it. A second database takes the part of staging, and a
/// third one publishes nothing. Scripts find the addresses in their environment variables.
final class PageStage {
    private static let secret = "a secret of clients that is long enough"
    private static let otherSecret = "a secret of operators that is long enough"
    private static let ana = "00000000-0000-4000-8000-00000000000a"

    /// Folder of the programs that were built together with the tests.
    static let programs = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
        .deletingLastPathComponent().path

    private let cluster: PrivateCluster
    private let plain: PrivateCluster
    private let directory = TemporaryDirectory.make("pages")
    private let root: URL
    private var environment: [String: String] = [:]
    private var hub: ChildProcess?
    private var listener: TestClient?

    init(root: URL) throws {
        self.root = root
        cluster = try TestCluster.fresh(clientRoles: false)
        plain = try TestCluster.fresh(clientRoles: false)
        environment = [
            "PATH": Self.programs + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"),
            "HOME": directory,
            "TIDEWIRE_DATA_DIR": directory + "/data", "TIDEWIRE_JWT_SECRET": Self.secret,
            "TIDEWIRE_OPERATOR_JWT_SECRET": Self.otherSecret, "TIDEWIRE_METRICS_JWT_SECRET": Self.otherSecret,
            "ROOT": root.path,
        ]
        for (name, isPublished) in [("app", true), ("staging", true), ("unpublished", false)] {
            try prepare(name, isPublished: isPublished)
        }
        let url = { [cluster] in cluster.url(user: $0, password: "one", database: "app") }
        environment["TIDEWIRE_DATABASE_URL"] = url("tidewire")
        environment["TIDEWIRE_POLICY_DATABASE_URL"] = url("tidewire_policies")
        environment["SUPERUSER_URL"] = cluster.url(database: "app")
        environment["STAGING"] = cluster.url(database: "staging")
        try startHub()
        try listen()
        try makePast()
    }

    private struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// Tables and policies of the reader's own application. They are all that the stage adds to the quickstart, and a
    /// test checks that.
    static let application = [
        "CREATE TABLE orders (id bigint PRIMARY KEY, owner uuid, status text)",
        "CREATE TABLE team_members (team int, person uuid, PRIMARY KEY (team, person))",
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY own ON orders FOR SELECT TO authenticated USING (owner = auth.uid())",
    ]

    /// Prepares a database by the quickstart's own blocks: its step 1, then the statements that the command prints,
    /// then step 2 if `isPublished` is true.
    private func prepare(_ name: String, isPublished: Bool) throws {
        try cluster.connect().execute("CREATE DATABASE \(name)")
        let connection = try cluster.connect(database: name)
        environment["SUPERUSER_URL"] = cluster.url(database: name)
        let said = try output(quickstart("tidewire db apply", "sh"))
        for statement in said.matches(of: /ALTER ROLE \w+ PASSWORD '…';/) {
            try connection.execute(String(statement.0).replacing("…", with: "one"))
        }
        for statement in Self.application { try connection.execute(statement) }
        if isPublished { try connection.execute(quickstart("ALTER PUBLICATION", "sql")) }
    }

    /// Returns the page's first block in the language whose text begins with `beginning`.
    private func quickstart(_ beginning: String, _ language: String) throws -> String {
        let page = Page(
            path: "docs/quickstart.md",
            text: try String(contentsOf: root.appending(path: "docs/quickstart.md"), encoding: .utf8))
        guard let block = page.blocks.first(where: { $0.language == language && $0.text.hasPrefix(beginning) }) else {
            throw Failure(description: "\(page) has no block of \(language) that begins with \(beginning)")
        }
        return block.text
    }

    private func startHub() throws {
        let log = directory + "/serve.log"
        hub = try ChildProcess(
            [Self.programs + "/tidewire", "serve", "--listen", "127.0.0.1:0"], output: log, environment: environment)
        try until("the hub is ready") {
            let said = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
            guard let port = said.firstMatch(of: /listening address=127\.0\.0\.1:(\d+)/)?.1 else { return false }
            environment["HUB"] = "http://127.0.0.1:\(port)"
            return (try? output("curl --fail --silent \"$HUB/ready\"")) != nil
        }
        for (name, setting, options) in [
            ("TOKEN", "TIDEWIRE_JWT_SECRET", "--role authenticated --subject \(Self.ana)"),
            ("OPERATOR_TOKEN", "TIDEWIRE_OPERATOR_JWT_SECRET", ""),
            ("METRICS_TOKEN", "TIDEWIRE_METRICS_JWT_SECRET", ""),
        ] {
            let token = try output("printf %s \"$\(setting)\" | python3 \"$ROOT/deploy/token\" \(options)")
            environment[name] = token.trimmingCharacters(in: .whitespacesAndNewlines)
        }
        let end = try output("curl --fail --silent \"$HUB/realtime/v1/api/changes?table=orders&apikey=$TOKEN\"")
        guard let position = end.firstMatch(of: /"position":"([^"]+)"/)?.1 else { throw Failure(description: end) }
        environment["POSITION"] = String(position)
    }

    /// Connects a client, subscribes it to the orders, and keeps it connected.
    private func listen() throws {
        guard let port = (environment["HUB"]?.split(separator: ":").last).flatMap({ UInt16($0) }) else { return }
        let client = try TestClient(port: port)
        try client.send(
            "GET /realtime/v1/websocket?apikey=\(environment["TOKEN"] ?? "")&vsn=1.0.0 HTTP/1.1\r\nHost: hub\r\n"
                + "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                + "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")
        let join = Array(
            """
            {"topic":"realtime:orders","event":"phx_join","ref":"1","join_ref":"1","payload":{"config":{
            "postgres_changes":[{"event":"*","schema":"public","table":"orders"}]}}}
            """.utf8)
        // The frame's mask is all zeros, so that the text is unchanged.
        try client.send([0x81, 0xfe, UInt8(join.count >> 8), UInt8(join.count & 0xff), 0, 0, 0, 0] + join)
        var heard: [UInt8] = []
        try until("somebody is subscribed") {
            _ = try? client.receive(appendingTo: &heard)
            return String(decoding: heard, as: UTF8.self).contains("Subscribed to PostgreSQL")
        }
        listener = client
    }

    private func makePast() throws {
        let connection = try cluster.connect(database: "app")
        try connection.execute("INSERT INTO orders VALUES (4711, '\(Self.ana)', 'open'), (4712, NULL, 'open')")
        try connection.execute("UPDATE orders SET status = 'paid' WHERE id = 4711")
        try until("the log has it") { (try? output("tidewire row orders 4711 --json"))?.contains("paid") == true }
    }

    private func until(_ what: String, _ isSo: () throws -> Bool) throws {
        for _ in 0..<900 {
            if try isSo() { return }
            usleep(200_000)
        }
        let said = (try? String(contentsOfFile: directory + "/serve.log", encoding: .utf8)) ?? ""
        throw Failure(description: "\(what): waited in vain\n\(said.suffix(2_000))")
    }

    /// Returns the output of a script. Throws an error with that output if the script fails.
    private func output(_ script: String, in folder: String? = nil) throws -> String {
        let place = directory + "/output"
        let folder = folder ?? directory
        // A child process appends to an existing file, so the file is removed first.
        try? FileManager.default.removeItem(atPath: place)
        let ending = try ChildProcess(
            ["/bin/sh", "-euc", "cd '\(folder)'\n\(script)"], output: place, environment: environment
        ).wait(milliseconds: 180_000)
        let said = (try? String(contentsOfFile: place, encoding: .utf8)) ?? ""
        guard ending == .exited(0) else {
            throw Failure(description: "\(ending.map { "\($0)" } ?? "did not end"): \(said.suffix(2_000))")
        }
        return said
    }

    /// Runs a block in the folder of its page, in which the page's blocks run one after another.
    func failure(ofScript block: Page.Block) throws -> String? {
        let folder = directory + "/" + block.page.replacing("/", with: "-")
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        do {
            _ = try output(block.text, in: folder)
            return nil
        } catch {
            return "\(error)"
        }
    }

    /// Runs a block in a transaction that is rolled back. The database has no publication, or no preparation at all.
    func failure(ofSQL block: Page.Block) -> String? {
        do {
            let connection =
                block.note == .runs(on: "a plain database")
                ? try plain.connect() : try cluster.connect(database: "unpublished")
            defer { _ = try? connection.execute("ROLLBACK") }
            try connection.execute("BEGIN")
            try connection.execute(block.text)
            return nil
        } catch {
            return "\(error)"
        }
    }

    func metrics() throws -> String {
        try output("curl --fail --silent -H \"Authorization: Bearer $METRICS_TOKEN\" \"$HUB/metrics\"")
    }

    func end() {
        listener?.close()
        hub?.signal(SIGTERM)
        _ = hub?.wait(milliseconds: 60_000)
        cluster.stop()
        plain.stop()
    }
}
