import Diagnostics
import Embedded
import Postgres
import System
import TestSupport
import Testing

@testable import Catalog
@testable import Server
@testable import Settings

extension GatewayHistories {
    /// Tests of random histories of rows whose columns, labels and publication keep changing. At each change, the test
    /// asks PostgreSQL if the reader may see the row. A client must receive only rows that it may see, live or after it
    /// resumes. If it misses one, the hub must tell it.
    @Suite(.serialized, .postgres(15)) struct IdentityHistoryTests {
        @Test(arguments: seeds(8)) func `nobody hears of what PostgreSQL would not have shown`(seed: Seed) throws {
            let run = try IdentityRun(seed)
            for _ in 0..<12 {
                try run.step()
                try run.compareLive()
            }
            try run.compareReturns()
            print("seed \(seed): \(run.summary)")
            #expect(run.heard > 0)
        }
    }
}

private final class IdentityRun {
    private let stage: GatewayStage
    private var random: SeededRandom
    private let seed: Seed
    /// True if the stream reports new definitions. Otherwise the hub finds changed types by polling, which takes a
    /// while.
    private let isTold: Bool
    /// Current column names: of the column that policies read, of the one without a grant, and of one that is added and
    /// dropped repeatedly.
    private var (seen, secret, flag) = ("a", "b", "f")
    private var labels = ["open", "shut", "locked"]
    private var number = 0
    private var fence = 0
    private var sql: [String] = []
    private var live: Caller?
    private let start: String
    private(set) var heard = 0
    private var (lost, shown) = (0, 0)

    var summary: String { "\(heard) messages heard, \(shown) of them shown, \(lost) lost and told" }

    init(_ seed: Seed) throws {
        self.seed = seed
        random = SeededRandom(seed: seed)
        isTold = seed.number % 2 == 0
        let extras = isTold ? SQLFile.extras.map(\.text).joined(separator: "\n") : ""
        stage = try GatewayStage(
            """
            CREATE TYPE state AS ENUM ('open', 'shut', 'locked');
            CREATE TABLE notes (id int PRIMARY KEY, a text, b text, s state, n int, f text);
            ALTER TABLE notes ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL, ALTER f SET STORAGE EXTERNAL;
            CREATE TABLE fences (id int PRIMARY KEY);
            CREATE TABLE trail (number serial, operation text, n int, sees boolean);
            GRANT SELECT ON fences TO READER; GRANT SELECT (id, a, s, n, f) ON notes TO READER;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY seen ON notes FOR SELECT USING (a LIKE 'yes%' AND s <> 'locked');
            CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
            DECLARE r notes := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END; sees boolean;
            BEGIN
                PERFORM set_config('role', 'READER', true);
                EXECUTE 'SELECT EXISTS (SELECT FROM notes WHERE id = $1)' INTO sees USING r.id;
                PERFORM set_config('role', 'none', true);
                INSERT INTO trail (operation, n, sees) VALUES (TG_OP, CASE WHEN TG_OP = 'DELETE' THEN r.id ELSE r.n END, sees);
                RETURN r;
            END $$;
            CREATE TRIGGER note AFTER INSERT OR UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION note();
            CREATE TRIGGER note_deletes BEFORE DELETE ON notes FOR EACH ROW EXECUTE FUNCTION note();
            """ + extras, publication: "FOR TABLE notes, fences")
        let caller = try stage.caller()
        try caller.subscribe(
            "realtime:p", [binding("fences")], token: stage.token(of: 1),
            more: #","broadcast":{"tidewire":{"snapshot":true}}"#)
        start = try #require(try caller.first { $0.payload["position"] is String }.payload["position"] as? String)
        caller.hangUp()
        live = try follow(nil)
    }

    private func follow(_ position: String?) throws -> Caller {
        let caller = try stage.caller()
        let resume = position.map { #","broadcast":{"tidewire":{"resume":"\#($0)"}}"# } ?? ""
        try caller.subscribe(
            "realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: 1), more: resume)
        return caller
    }

    // MARK: Steps

    func step() throws {
        var statements: [String] = []
        if Int.random(in: 0..<4, using: &random) == 0 {
            let change = labelChange()
            if isTold {
                statements.append(change)
            } else {
                sql.append(change)
                try run(change)
                try stage.awaitCatalog()
            }
        }
        for _ in 0..<Int.random(in: 1...5, using: &random) { statements.append(statement()) }
        let isOne = Bool.random(using: &random)
        sql += statements
        if isOne { return try run("BEGIN;" + statements.joined() + "COMMIT") }
        for statement in statements { try run(statement) }
    }

    private func run(_ text: String) throws {
        do { try stage.run(text) } catch { Issue.record("seed \(seed): \(error) in \(text)") }
    }

    private func statement() -> String {
        let id = Int.random(in: 1...6, using: &random)
        switch Int.random(in: 0..<18, using: &random) {
        case 0..<8:
            number += 1
            return "DELETE FROM notes WHERE id = \(id);"
                + "INSERT INTO notes (id, \(seen), \(secret), s, n, \(flag)) VALUES (\(id), \(large("yes", "no")), repeat('hidden', 1500), '\(label())', \(number), \(large("flag", "f")));"
        case 8..<11:
            number += 1
            return "UPDATE notes SET n = \(number) WHERE id = \(id);"
        case 11:
            number += 1
            return "UPDATE notes SET n = \(number), \(seen) = \(large("yes", "no")), s = '\(label())' WHERE id = \(id);"
        case 12: return "DELETE FROM notes WHERE id = \(id);"
        case 13..<15:
            (seen, secret) = (secret, seen)
            return
                "ALTER TABLE notes RENAME \(secret) TO swapped; ALTER TABLE notes RENAME \(seen) TO \(secret); ALTER TABLE notes RENAME swapped TO \(seen);"
        case 15:
            return
                "ALTER TABLE notes DROP \(flag); ALTER TABLE notes ADD \(flag) text; GRANT SELECT (\(flag)) ON notes TO READER;"
        case 16:
            return "ALTER PUBLICATION supabase_realtime DROP TABLE notes;" + hidden(id)
                + "ALTER PUBLICATION supabase_realtime ADD TABLE notes;"
        default:
            return "ALTER PUBLICATION supabase_realtime SET (publish = 'insert');" + hidden(id)
                + "ALTER PUBLICATION supabase_realtime SET (publish = 'insert, update, delete, truncate');"
        }
    }

    private func labelChange() -> String {
        if Bool.random(using: &random) {
            let (one, two) = (labels[1], labels[2])
            labels.swapAt(1, 2)
            return
                "ALTER TYPE state RENAME VALUE '\(one)' TO 'x'; ALTER TYPE state RENAME VALUE '\(two)' TO '\(one)'; ALTER TYPE state RENAME VALUE 'x' TO '\(two)';"
        }
        number += 1
        let (old, new) = (labels[2], "l\(number)")
        labels[2] = new
        return "ALTER TYPE state RENAME VALUE '\(old)' TO '\(new)';"
    }

    /// Returns a statement that changes the row without a published change. The hub's earlier knowledge of the row is
    /// wrong after it.
    private func hidden(_ id: Int) -> String {
        number += 1
        return "UPDATE notes SET n = \(number), \(seen) = \(large("yes", "no")) WHERE id = \(id);"
    }

    private func large(_ one: String, _ other: String) -> String {
        let text = random.pick([one, one, one, other])
        return random.pick(["'\(text)'", "repeat('\(text)', 4000)", "repeat('\(text)', 4000)"])
    }

    private func label() -> String { random.pick([labels[0], labels[0], labels[1], labels[2]]) }

    // MARK: Comparing

    /// Returns all messages about `notes` that the client has received so far.
    private func messages(_ caller: Caller, after fence: Int) throws -> [Message] {
        var heard: [Message] = []
        while true {
            let change = try caller.change()
            if change.data["table"] as? String != "fences" {
                heard.append(change)
            } else if change.id == fence {
                return heard
            }
        }
    }

    func compareLive() throws {
        guard let live else { return }
        fence += 1
        try stage.run("INSERT INTO fences VALUES (\(fence))")
        let trail = try stage.run("SELECT operation, n, sees FROM trail ORDER BY number").values
        try compare(try messages(live, after: fence), trail, live, "live")
        try stage.run("DELETE FROM trail")
        past += trail
    }

    private var past: [[String?]] = []

    /// Checks that a returning client receives everything, even if the hub was restarted.
    func compareReturns() throws {
        live?.hangUp()
        live = nil
        try stage.awaitLog()
        try stage.awaitCatalog()
        for way in ["resumed", "restarted"] {
            if way == "restarted" { try stage.restart {} }
            let caller = try follow(start)
            fence += 1
            try stage.run("INSERT INTO fences VALUES (\(fence))")
            try compare(try messages(caller, after: fence), past, caller, way)
        }
    }

    private func compare(_ messages: [Message], _ trail: [[String?]], _ caller: Caller, _ way: String) throws {
        heard += messages.count
        let visible = trail.filter { $0[2] == "t" }
        let allowed = Set(visible.map { "\($0[0] ?? "") \($0[1] ?? "")" })
        var said: Set<String> = []
        for message in messages {
            let key = message.type == "DELETE" ? message.old["id"] as? Int : message.record["n"] as? Int
            let name = "\(message.type ?? "") \(key ?? -1)"
            said.insert(name)
            shown += 1
            if !allowed.contains(name) { fail("\(way): \(name) is told of a row that nobody may see", trail) }
            if "\(message)".contains("hidden") { fail("\(way): \(name) tells a column that is not granted", trail) }
        }
        let missing = visible.filter { $0[0] != "DELETE" && !said.contains("\($0[0] ?? "") \($0[1] ?? "")") }
        guard !missing.isEmpty else { return }
        lost += missing.count
        guard (try? caller.first { $0.payload["code"] as? String == "ChangesMissing" }) == nil else { return }
        fail("\(way): \(missing.map { "\($0[0] ?? "") \($0[1] ?? "")" }) are lost without a word", trail)
    }

    private func fail(_ what: String, _ trail: [[String?]]) {
        let steps = sql.suffix(40).map { String($0.prefix(400)) }.joined(separator: "\n")
        Issue.record("SEED=\(seed) \(what)\n\(trail)\n\(steps)")
    }
}
