import Diagnostics
import Foundation
import Postgres
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension GatewayRows {
    /// Tests of random histories of rows with generated columns. They use every replica identity, large values that
    /// updates leave unchanged, and changing definitions. A trigger records the columns' values. Clients must receive
    /// these values or none. Filters must select the rows that match by these values, if the hub can know them.
    ///
    /// `SEED=n` runs one seed, `TIDEWIRE_GENERATED_STEPS=n` makes the histories longer.
    @Suite(.serialized, .postgres(before: 18)) struct GeneratedHistoryTests {
        private static let steps =
            ProcessInfo.processInfo.environment["TIDEWIRE_GENERATED_STEPS"].flatMap { Int($0) } ?? 25

        private struct Entry {
            var operation: String
            var id: Int
            /// Row after the change; for a delete, the deleted row.
            var row: [String: String]
            /// True if the change left the large value unchanged and nothing else contains it.
            var lacksBody: Bool
        }

        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, team int, code int NOT NULL UNIQUE, body text,
                half int GENERATED ALWAYS AS (team / 2) STORED, size int GENERATED ALWAYS AS (length(body)) STORED,
                mixed text GENERATED ALWAYS AS (team::text || ':' || left(body, 1)) STORED);
            ALTER TABLE notes ALTER body SET STORAGE EXTERNAL;
            CREATE TABLE fences (id int PRIMARY KEY);
            CREATE TABLE trail (place bigserial, operation text, id int, row jsonb, same_body bool, large bool);
            GRANT SELECT ON notes, fences TO READER;
            CREATE FUNCTION note_trail() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF TG_OP = 'DELETE' THEN NEW := OLD; END IF;
                INSERT INTO trail (operation, id, row, same_body, large) SELECT TG_OP, NEW.id, to_jsonb(NEW) - 'body',
                    TG_OP = 'UPDATE' AND NEW.body IS NOT DISTINCT FROM OLD.body, coalesce(length(NEW.body), 0) > 5000;
                RETURN NULL;
            END $$;
            CREATE TRIGGER trail AFTER INSERT OR UPDATE OR DELETE ON notes FOR EACH ROW EXECUTE FUNCTION note_trail();
            """

        @Test(arguments: seeds(2), ["FULL", "DEFAULT", "USING INDEX notes_code_key"])
        func `what is heard is what PostgreSQL generated`(seed: Seed, identity: String) throws {
            var random = SeededRandom(seed: seed)
            let stage = try GatewayStage(
                Self.tables + "ALTER TABLE notes REPLICA IDENTITY \(identity);", publication: "FOR TABLE notes, fences",
                [(Setting(\.loops), "2")])
            let filters = [nil, "half=eq.1", "size=gt.100", "mixed=in.(1:a,2:b,3:a)", "size=is.null"]
            let callers = try filters.map { filter in
                let caller = try stage.caller()
                try caller.subscribe(
                    "realtime:a", [binding("notes", filter: filter), binding("fences")], token: stage.token(of: 1))
                return caller
            }
            for step in 1...Self.steps {
                let sql = (0..<Int.random(in: 1...5, using: &random)).map { _ in Self.statement(&random) }.joined()
                let change = step % 9 == 0 ? Self.definition(&random) : ""
                try stage.run("DELETE FROM trail")
                // The hub reads the catalog after the earlier changes, so that a definition is never newer than the
                // rows.
                try stage.run("BEGIN;" + change + "COMMIT")
                try stage.run(Bool.random(using: &random) ? "BEGIN;" + sql + "COMMIT" : sql)
                try stage.run("INSERT INTO fences VALUES (\(step))")
                let trail = try Self.trail(stage, isFull: identity == "FULL")
                for (caller, filter) in zip(callers, filters) {
                    let heard = try Self.heard(caller, step)
                    let ids = heard.map { "\($0.type ?? "") \(Self.id(of: $0))" }
                    let passing = trail.filter { Self.passes($0, filter) }
                    let mustBeHeard = { (entry: Entry) in
                        !(entry.lacksBody && Self.needsBody(filter)
                            || entry.operation == "DELETE" && identity != "FULL" && filter != nil)
                    }
                    let wanted = Self.matched(heard[...], passing[...], mustBeHeard) ?? passing.filter(mustBeHeard)
                    #expect(
                        ids == wanted.map { "\($0.operation) \($0.id)" },
                        "seed \(seed), step \(step), \(filter ?? "-"): \(sql)")
                    for (change, entry) in zip(heard, wanted) {
                        Self.compare(change, entry, isFull: identity == "FULL", "seed \(seed), step \(step): \(sql)")
                    }
                }
            }
        }

        // MARK: Random steps

        private static func statement(_ random: inout SeededRandom) -> String {
            let id = Int.random(in: 1...8, using: &random)
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<4:
                let (team, body) = (random.pick(["1", "2", "3", "NULL"]), Self.body(&random))
                return
                    "INSERT INTO notes (id, team, code, body) VALUES (\(id), \(team), \(id), \(body)) ON CONFLICT DO NOTHING;"
            case 4..<6: return "UPDATE notes SET team = coalesce(team, 0) + 1 WHERE id <= \(id);"
            case 6: return "UPDATE notes SET body = \(Self.body(&random)) WHERE id = \(id);"
            case 7:
                return
                    "UPDATE notes SET id = id + 10, code = code + 10 WHERE id = \(id) AND NOT EXISTS (SELECT FROM notes n WHERE n.id = \(id + 10));"
            default: return "DELETE FROM notes WHERE id % 9 = \(id);"
            }
        }

        private static func body(_ random: inout SeededRandom) -> String {
            random.pick(["'a'", "'b'", "NULL", "repeat('a', 9000)", "repeat('b', 9000)", "repeat('c', 200)"])
        }

        private static func definition(_ random: inout SeededRandom) -> String {
            random.pick([
                "ALTER TABLE notes DROP COLUMN IF EXISTS more;",
                "ALTER TABLE notes DROP COLUMN IF EXISTS more; ALTER TABLE notes ADD COLUMN more int GENERATED ALWAYS AS (team * 3) STORED;",
                "ALTER TABLE notes DROP COLUMN IF EXISTS more; ALTER TABLE notes ADD COLUMN more text GENERATED ALWAYS AS ('m' || team::text) STORED;",
            ])
        }

        // MARK: Received changes

        /// Returns the entries that were heard, in order. The hub may know a result that depends on an unsent value, but
        /// need not, so some entries may be missing. Nil if nothing explains what was heard.
        private static func matched(
            _ heard: ArraySlice<Message>, _ entries: ArraySlice<Entry>, _ mustBeHeard: (Entry) -> Bool
        ) -> [Entry]? {
            guard let entry = entries.first else { return heard.isEmpty ? [] : nil }
            if let change = heard.first, change.type == entry.operation, id(of: change) == entry.id,
                change.type == "DELETE" || differences(change, entry).isEmpty,
                let rest = matched(heard.dropFirst(), entries.dropFirst(), mustBeHeard)
            {
                return [entry] + rest
            }
            return mustBeHeard(entry) ? nil : matched(heard, entries.dropFirst(), mustBeHeard)
        }

        private static func heard(_ caller: Caller, _ fence: Int) throws -> [Message] {
            var heard: [Message] = []
            while true {
                let change = try caller.change()
                guard change.data["table"] as? String == "fences" else {
                    heard.append(change)
                    continue
                }
                if change.id == fence { return heard }
            }
        }

        private static func trail(_ stage: GatewayStage, isFull: Bool) throws -> [Entry] {
            try stage.run("SELECT operation, id, row, same_body, large FROM trail ORDER BY place").values.map { row in
                let object =
                    try JSONSerialization.jsonObject(with: Data((row[2] ?? "{}").utf8)) as? [String: Any] ?? [:]
                return Entry(
                    operation: row[0] ?? "", id: row[1].flatMap { Int($0) } ?? -1,
                    row: object.compactMapValues { $0 is NSNull ? nil : "\($0)" },
                    lacksBody: row[3] == "t" && row[4] == "t" && !isFull)
            }
        }

        private static func id(of change: Message) -> Int {
            let row = change.type == "DELETE" ? change.old : change.record
            return row["id"] as? Int ?? row["code"] as? Int ?? -1
        }

        private static func needsBody(_ filter: String?) -> Bool {
            filter.map { $0.hasPrefix("size") || $0.hasPrefix("mixed") } ?? false
        }

        private static func passes(_ entry: Entry, _ filter: String?) -> Bool {
            guard let filter else { return true }
            switch filter {
            case "half=eq.1": return entry.row["half"] == "1"
            case "size=gt.100": return entry.row["size"].flatMap { Int($0) }.map { $0 > 100 } ?? false
            case "size=is.null": return entry.row["size"] == nil
            default: return ["1:a", "2:b", "3:a"].contains(entry.row["mixed"] ?? "")
            }
        }

        private static func compare(_ change: Message, _ entry: Entry, isFull: Bool, _ about: String) {
            if change.type == "DELETE", !isFull { return }
            for name in differences(change, entry) { Issue.record("\(name): \(about)") }
        }

        /// Returns the names of the generated columns that the change does not show as the entry has them.
        private static func differences(_ change: Message, _ entry: Entry) -> [String] {
            let row = change.type == "DELETE" ? change.old : change.record
            return ["half", "size", "mixed", "more"].filter { name in
                let isThere = row.keys.contains(name)
                // The column depends on an unsent value. So it may be missing, but it must not be wrong, and not be
                // NULL for that reason.
                if !isThere, entry.lacksBody, name == "size" || name == "mixed" { return false }
                let value = row[name].flatMap { $0 is NSNull ? nil : "\($0)" }
                return value != entry.row[name] || name != "more" && !isThere
            }
        }
    }
}
