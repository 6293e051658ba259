import Embedded
import Foundation
import System
import TestSupport
import Testing

@testable import Console
@testable import Settings
@testable import tidewire

/// Compares the actors that commands show with those that the transactions named.
@Suite(.inChain(minutes: 10), .serialized) struct ActorTests {
    private static let tables = """
        CREATE TABLE notes (id int PRIMARY KEY, v int NOT NULL, pad text);
        GRANT SELECT, INSERT, UPDATE ON notes TO READER;
        """

    private final class Recorder {
        var output: [UInt8] = []
        var errors: [UInt8] = []
    }

    private static func text(_ words: [String], _ stage: GatewayStage) throws -> String {
        try onThisThread {
            let recorder = Recorder()
            let terminal = Terminal(
                width: nil, surroundings: .only(),
                output: { (bytes) throws(OutputFailure) in recorder.output += bytes },
                errors: { (bytes) throws(OutputFailure) in recorder.errors += bytes })
            let commands: [any Command] = [
                TailCommand(), RowCommand(), EventCommand(), TransactionCommand(), StatisticsCommand(),
            ]
            _ = await Program(commands: commands).run(words + ["--log", stage.dataDirectory + "/log"], terminal)
            #expect(recorder.errors.isEmpty, "\(words): \(String(decoding: recorder.errors, as: UTF8.self))")
            return String(decoding: recorder.output, as: UTF8.self)
        }
    }

    private static func ask(_ words: String..., of stage: GatewayStage) throws -> [[String: Any]] {
        try text(words + ["--json"], stage).split(separator: "\n").map {
            try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any] ?? [:]
        }
    }

    private static func stage() throws -> GatewayStage {
        try GatewayStage(
            tables + SQLFile.actors.map(\.text).joined(separator: "\n"), publication: "FOR TABLE notes")
    }

    /// Returns the actor's name that a line of JSON has.
    private static func actor(_ line: [String: Any]?) -> String? {
        (line?["actor"] as? [String: Any])?["actor"] as? String
    }

    @Test(arguments: seeds(2)) func `each change has the actor that its transaction named before it`(
        _ seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let stage = try Self.stage()
        defer { stage.stop() }
        var expected: [Int: String?] = [:]
        var version = 0
        for _ in 0..<12 {
            var sql = ["BEGIN"]
            var actor: String?
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                if Bool.random(using: &random) {
                    let name = random.pick(["ana", "ben \"the\" cat", "job/7"])
                    actor = name
                    sql.append("SELECT tidewire.actor('\(name)', '{\"n\": 1}')")
                }
                version += 1
                expected[version] = .some(actor)
                sql.append(
                    "INSERT INTO notes VALUES (\(Int.random(in: 0..<5, using: &random)), \(version)) ON CONFLICT (id) DO UPDATE SET v = \(version)"
                )
            }
            try stage.run((sql + ["COMMIT"]).joined(separator: "; "))
        }
        try stage.awaitLog()
        var counts: [String: Int] = [:]
        let changes = try Self.ask("tail", "--from", "oldest", "--table", "notes", of: stage)
        #expect(changes.count == version)
        for change in changes {
            let number = (change["record"] as? [String: Any])?["v"] as? Int ?? -1
            #expect(Self.actor(change) == expected[number] ?? nil, "\(change)")
            counts[Self.actor(change) ?? "", default: 0] += 1
            let one = try Self.ask("event", "@\(change["offset"] as? Int ?? -1)", of: stage)
            #expect(Self.actor(one.first) == Self.actor(change))
        }
        for id in 0..<5 {
            for line in try Self.ask("row", "notes", "\(id)", of: stage) where line["record"] is [String: Any] {
                let number = (line["record"] as? [String: Any])?["v"] as? Int ?? -1
                #expect(Self.actor(line) == expected[number] ?? nil, "\(line)")
            }
        }
        let groups = try Self.ask("stats", "--by", "actor", "--table", "notes", of: stage).filter {
            $0["kind"] as? String == "group"
        }
        let counted = groups.map { ($0["actor"] as? String ?? "", $0["changes"] as? Int ?? -1) }
        #expect(Dictionary(counted, uniquingKeysWith: +) == counts)
    }

    @Test func `requests of PostgREST name their user, and reading names nobody`() throws {
        let stage = try Self.stage()
        defer { stage.stop() }
        try stage.run("BEGIN READ ONLY; SELECT tidewire.actor('nobody'); COMMIT")
        try stage.run(
            """
            BEGIN; SET LOCAL ROLE READER; SET LOCAL application_name = 'rest';
            SELECT set_config('request.jwt.claims', '{"sub":"u-1","role":"READER"}', true),
                set_config('request.method', 'POST', true), set_config('request.path', '/notes', true),
                set_config('request.headers', '{"x-request-id":"r-9"}', true);
            SELECT tidewire.actor_of_request();
            INSERT INTO notes VALUES (1, 1); COMMIT
            """)
        try stage.run("BEGIN; SELECT tidewire.actor(); INSERT INTO notes VALUES (2, 2); COMMIT")
        try stage.awaitLog()
        let changes = try Self.ask("tail", "--from", "oldest", "--table", "notes", of: stage)
        let request = try #require(changes.first?["actor"] as? [String: Any])
        #expect(request["actor"] as? String == "u-1" && request["sub"] as? String == "u-1", "\(request)")
        #expect(request["role"] as? String == stage.reader && request["application"] as? String == "rest", "\(request)")
        #expect(
            request["details"] as? [String: String] == ["method": "POST", "path": "/notes", "request": "r-9"],
            "\(request)")
        // Without a request and a name, the database user counts.
        #expect(Self.actor(changes.last) == (changes.last?["actor"] as? [String: Any])?["user"] as? String)
        let words = try Self.text(["tail", "--from", "oldest"], stage)
        #expect(words.contains("by u-1: ") && !words.contains("nobody"), "\(words)")
        #expect(try Self.text(["row", "notes", "1"], stage).contains("by u-1: "))
        let xid = try #require(changes.first?["xid"] as? Int)
        #expect(try Self.text(["tx", "\(xid)"], stage).contains("by u-1: "))
        let offset = try #require(changes.first?["offset"] as? Int)
        #expect(try Self.text(["event", "@\(offset)"], stage).contains("by u-1, as the application says: {"))
        #expect(try Self.text(["stats", "--by", "actor"], stage).contains("u-1"))
    }

    /// Makes a transaction that the log stores in several parts. Readers of the last part alone find the actor too.
    @Test func `a large transaction has its actor in each of its parts`() throws {
        let stage = try Self.stage()
        defer { stage.stop() }
        try stage.run(
            "BEGIN; SELECT tidewire.actor('bulk'); INSERT INTO notes SELECT n, n, repeat('x', 500) FROM generate_series(1, 12000) n; COMMIT"
        )
        try stage.awaitLog()
        for id in [1, 6000, 12000] {
            let lines = try Self.ask("row", "notes", "\(id)", of: stage)
            #expect(Self.actor(lines.first) == "bulk", "\(id): \(lines)")
            let offset = lines.first?["offset"] as? Int ?? -1
            #expect(Self.actor(try Self.ask("event", "@\(offset)", of: stage).first) == "bulk", "\(id)")
        }
    }
}
