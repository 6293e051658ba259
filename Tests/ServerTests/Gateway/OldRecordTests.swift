import Diagnostics
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension GatewayRows {
    /// Tests of `old_record` in updates, for users who see the new row: it must contain only the parts of the old row
    /// that they could see.
    @Suite(.serialized) struct OldRecordTests {
        enum Identity: String, CaseIterable, CustomStringConvertible {
            case primaryKey = "DEFAULT"
            case full = "FULL"
            case index = "USING INDEX notes_code"
            case nothing = "NOTHING"

            var description: String { rawValue }

            /// Columns that an old row image contains.
            var columns: [String] {
                switch self {
                case .primaryKey: ["id"]
                case .full: ["id", "owner", "kind", "code"]
                case .index: ["code"]
                case .nothing: []
                }
            }
        }

        /// Three ways to determine a row's visibility.
        enum Policy: String, CaseIterable, CustomStringConvertible {
            /// Policy that the hub decides, by a column that keys do not contain.
            case ofOwner = "owner = auth.uid()"
            /// Policy that PostgreSQL decides.
            case asked = "asks(owner)"
            /// Policy that the key alone decides.
            case ofKey = "KEY < 500"

            var description: String { rawValue }
        }

        private struct Case {
            var number: Int
            var changesKey: Bool
            var wasVisible: Bool
            var isVisible: Bool
            /// True if the log has the old row.
            var isKnown: Bool

            var oldKey: Int { (wasVisible ? 0 : 500) + 10 + number }
            var newKey: Int { changesKey ? (isVisible ? 200 : 700) + 10 + number : oldKey }

            var insert: String { "INSERT INTO notes VALUES (\(oldKey), '\(owner(wasVisible))', 'was', \(oldKey));" }

            var update: String {
                "UPDATE notes SET id = \(newKey), code = \(newKey), owner = '\(owner(isVisible))', kind = 'is' WHERE id = \(oldKey);"
            }

            private func owner(_ isVisible: Bool) -> String { GatewayStage.user(isVisible ? 1 : 2) }

            /// Returns the names of the old row's columns that the update's message contains.
            func told(_ identity: Identity, _ policy: Policy) -> [String] {
                // An unchanged key belongs to the new row as well.
                if identity != .full, !changesKey { return identity.columns }
                let canBeDecided = identity == .full || policy == .ofKey || isKnown
                return wasVisible && canBeDecided ? identity.columns : []
            }
        }

        private static func cases(_ policy: Policy) -> [Case] {
            var cases: [Case] = []
            for bits in 0..<16 {
                let made = Case(
                    number: bits, changesKey: bits & 1 != 0, wasVisible: bits & 2 != 0, isVisible: bits & 4 != 0,
                    isKnown: bits & 8 != 0)
                // A policy on an unchanged key gives the same result for the old and the new row.
                if policy != .ofKey || made.changesKey || made.wasVisible == made.isVisible { cases.append(made) }
            }
            return cases
        }

        private static func tables(_ identity: Identity, _ policy: Policy) -> String {
            let key = identity == .index ? "code" : "id"
            return """
                CREATE TABLE notes (id int PRIMARY KEY, owner uuid, kind text, code int NOT NULL);
                CREATE UNIQUE INDEX notes_code ON notes (code);
                ALTER TABLE notes REPLICA IDENTITY \(identity.rawValue);
                CREATE TABLE fences (id int PRIMARY KEY);
                GRANT SELECT ON notes, fences TO READER;
                CREATE FUNCTION asks(o uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                BEGIN RETURN o = auth.uid(); END $$;
                ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
                CREATE POLICY seen ON notes FOR SELECT USING (\(policy.rawValue.replacing("KEY", with: key)));
                """
        }

        private func follow(_ stage: GatewayStage, _ number: Int = 1) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: number))
            return caller
        }

        /// Returns the updates that a client received, by the rows' current keys.
        private func updates(_ caller: Caller, _ stage: GatewayStage) throws -> [Int: Message] {
            try stage.run("DELETE FROM fences; INSERT INTO fences VALUES (1)")
            var heard: [Int: Message] = [:]
            while true {
                let change = try caller.change()
                if change.data["table"] as? String == "fences", change.type == "INSERT" { return heard }
                if change.type == "UPDATE" { heard[change.id ?? -1] = change }
            }
        }

        @Test(arguments: Identity.allCases, Policy.allCases)
        func `an update tells nothing of a row that its receiver could not see`(
            identity: Identity, policy: Policy
        ) throws {
            let cases = Self.cases(policy)
            let before = cases.filter { !$0.isKnown }.map(\.insert).joined()
            let stage = try GatewayStage(
                Self.tables(identity, policy) + before, publication: "FOR TABLE notes, fences")
            let caller = try follow(stage)
            try stage.run(cases.filter(\.isKnown).map(\.insert).joined())
            guard identity != .nothing else {
                // PostgreSQL refuses all these updates, so there is nothing to send.
                #expect(throws: (any Error).self) { try stage.run(cases[0].update) }
                return
            }
            for one in cases { try stage.run(one.update) }
            let heard = try updates(caller, stage)
            #expect(heard.count == cases.count { $0.isVisible })
            for one in cases where one.isVisible {
                let change = try #require(heard[one.newKey], "\(one)")
                #expect(change.data["old_record"] is [String: Any])
                #expect(change.old.keys.sorted() == one.told(identity, policy).sorted(), "\(one): \(change.old)")
                for name in ["id", "code"] {
                    if let value = change.old[name] { #expect(value as? Int == one.oldKey, "\(one)") }
                }
                if let kind = change.old["kind"] { #expect(kind as? String == "was") }
            }
        }

        @Test func `where deletes are told as the reference tells them, the key is told as well`() throws {
            let stage = try GatewayStage(
                Self.tables(.full, .ofOwner), publication: "FOR TABLE notes, fences",
                [(Setting(\.deletesAreStrict), "reference")])
            let caller = try follow(stage)
            let one = Case(number: 0, changesKey: true, wasVisible: false, isVisible: true, isKnown: true)
            try stage.run(one.insert)
            try stage.run(one.update)
            let heard = try updates(caller, stage)
            #expect(heard[one.newKey]?.old.keys.sorted() == ["id"])
            #expect(heard[one.newKey]?.old["id"] as? Int == one.oldKey)
        }

        @Test(arguments: [Identity.primaryKey, .full, .index])
        func `who may see every row is told of it as ever`(identity: Identity) throws {
            let stage = try GatewayStage(
                Self.tables(identity, .ofOwner) + "ALTER TABLE notes DISABLE ROW LEVEL SECURITY;",
                publication: "FOR TABLE notes, fences")
            let caller = try follow(stage)
            let cases = Self.cases(.ofOwner)
            for one in cases { try stage.run(one.insert + one.update) }
            let heard = try updates(caller, stage)
            for one in cases {
                #expect(heard[one.newKey]?.old.keys.sorted() == identity.columns.sorted(), "\(one)")
            }
        }

        @Test func `several bindings and clients that wait for PostgreSQL are told no more than others`() throws {
            let stage = try GatewayStage(Self.tables(.primaryKey, .asked), publication: "FOR TABLE notes, fences")
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a",
                [binding("notes"), binding("notes", "UPDATE", filter: "kind=eq.is"), binding("fences")],
                token: stage.token(of: 1))
            let cases = Self.cases(.asked)
            for one in cases { try stage.run(one.insert) }
            for one in cases { try stage.run(one.update) }
            let heard = try updates(caller, stage)
            for one in cases where one.isVisible {
                var known = one
                known.isKnown = true
                #expect(
                    heard[one.newKey]?.old.keys.sorted() == known.told(.primaryKey, .asked).sorted(), "\(one)")
                #expect(heard[one.newKey]?.bindings.count == 2)
            }
        }
    }
}
