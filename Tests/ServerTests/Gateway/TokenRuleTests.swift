import Foundation
import Postgres
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension Gateways {
    /// Tests of the roles that tokens may name, and of the time after a token's end.
    @Suite(.serialized) struct TokenRuleTests {
        private static let notes = """
            CREATE TABLE notes (id int PRIMARY KEY, body text);
            GRANT SELECT ON notes TO READER, OUTSIDER, anon;
            """

        private func stage(_ sql: String = "", _ settings: [(Setting, String)] = []) throws -> GatewayStage {
            let stage = try GatewayStage(Self.notes + sql, publication: "FOR ALL TABLES", settings)
            // The hub needs the catalog's facts about roles to decide which roles it refuses.
            #expect(eventually { stage.hub.follows("notes") })
            return stage
        }

        private func refusal(_ role: String, _ stage: GatewayStage) throws -> String? {
            let caller = try stage.caller()
            defer { caller.hangUp() }
            let ref = try caller.push(
                "realtime:a", "phx_join", Caller.join([binding("notes")], token: stage.token(role)))
            let reply = try caller.first { $0.ref == ref && $0.event == "phx_reply" }
            guard reply.status != "ok" else { return nil }
            let response = reply.payload["response"] as? [String: Any]
            return response?["reason"] as? String
        }

        /// Returns the hub's answer to a client that connects with a token of the role.
        private func upgrade(_ role: String, _ stage: GatewayStage) throws -> (status: String, body: String) {
            let caller = try Caller(port: stage.hub.port)
            defer { caller.hangUp() }
            try caller.send(Caller.upgrade(stage.token(role)))
            return try caller.answer()
        }

        private static let refused = "InvalidJWTToken: The role of the token may not be used by clients"

        @Test func `a token names no role that is more than a client's`() throws {
            let stage = try stage(
                """
                CREATE ROLE boss_READER SUPERUSER; CREATE ROLE bypass_READER BYPASSRLS;
                CREATE ROLE copier_READER REPLICATION; CREATE ROLE plain_READER;
                """)
            let more = ["boss_", "bypass_", "copier_"].map { $0 + stage.reader }
            let own = ["hub_", "policies_"].map { $0 + stage.database.name }
            for role in more + own + ["postgres", "pg_read_all_data", "pg_signal_backend", "pg_none"] {
                #expect(try refusal(role, stage) == Self.refused, "\(role)")
                let answer = try upgrade(role, stage)
                #expect(answer.status.contains("401") && answer.body.contains("may not be used"), "\(role): \(answer)")
            }
            for role in [stage.reader, stage.outsider, "plain_" + stage.reader, "anon", "service_role"] {
                #expect(try refusal(role, stage) == nil, "\(role)")
            }
        }

        @Test func `settings say who may bypass row security, and who may come at all`() throws {
            let roles = "CREATE ROLE bypass_READER BYPASSRLS; GRANT SELECT ON notes TO bypass_READER;"
            let open = try stage(roles, [(Setting(\.bypassRoles), "service_role, x")])
            #expect(try refusal("bypass_" + open.reader, open) == Self.refused)
            let closed = try stage(
                "", [(Setting(\.allowedRoles), "anon, authenticated"), (Setting(\.bypassRoles), "none")])
            let caller = try Caller(port: closed.hub.port)
            try caller.send(Caller.upgrade(closed.token("anon")))
            #expect(try caller.read(through: "\r\n\r\n").hasPrefix("HTTP/1.1 101"))
            for role in [closed.reader, "service_role"] {
                #expect(try upgrade(role, closed).status.contains("401"), "\(role)")
            }
        }

        @Test func `a role that becomes more than a client's loses its channels`() throws {
            for attribute in ["SUPERUSER", "BYPASSRLS", "REPLICATION"] {
                let stage = try stage()
                let (one, two) = (try stage.caller(), try stage.caller())
                try one.subscribe("realtime:a", [binding("notes")])
                try two.subscribe("realtime:a", [binding("notes")], token: stage.token(stage.outsider))
                try stage.run("INSERT INTO notes VALUES (1, 'x')")
                #expect(try one.change().id == 1 && two.change().id == 1)
                try stage.run("ALTER ROLE READER \(attribute)")
                let said = try one.first { $0.event == "system" && $0.isTrouble }
                #expect(said.said == "The role of the token may not be used by clients")
                _ = try one.first { $0.event == "phx_close" }
                try stage.run("INSERT INTO notes VALUES (2, 'y')")
                #expect(try two.change().id == 2)
                try one.fence()
                #expect(one.takeUnheard().allSatisfy { $0.event != "postgres_changes" })
                // Logins of other tests must not be able to become this role while it has these rights.
                try stage.run("ALTER ROLE READER NOSUPERUSER NOBYPASSRLS NOREPLICATION")
            }
        }

        @Test func `nothing that is committed after a token's end is delivered`() throws {
            let stage = try stage()
            let callers = try (0..<4).map { number in
                let caller = try stage.caller()
                let seconds = 2 + number / 2
                let token = stage.token(lasting: seconds)
                try caller.subscribe("realtime:a", [binding("notes")], token: token)
                return (caller, try #require(Self.expiry(of: token)))
            }
            let (target, done) = (stage.database.target, Bell())
            let writing = try BackgroundThread("writer") {
                guard let connection = try? Connection(target) else { return }
                var id = 0
                while !done.rang {
                    id += 1
                    _ = try? connection.execute("INSERT INTO notes VALUES (\(id), 'x')")
                    BackgroundThread.rest(nanoseconds: 2_000_000)
                }
            }
            defer {
                done.ring()
                writing.join()
            }
            for (caller, expiry) in callers {
                _ = try caller.first { $0.event == "phx_close" }
                let heard = caller.takeUnheard().filter { $0.event == "postgres_changes" }
                let late = heard.compactMap { $0.data["commit_timestamp"] as? String }.filter { text in
                    Self.moment(text).map { $0 > Double(expiry) } ?? true
                }
                #expect(!heard.isEmpty && late.isEmpty, "\(late.count) of \(heard.count): \(late.last ?? "")")
            }
        }

        private static func expiry(of token: String) -> Int? {
            var payload = String(token.split(separator: ".")[1]).replacing("-", with: "+").replacing("_", with: "/")
            while payload.count % 4 != 0 { payload += "=" }
            let object = Data(base64Encoded: payload).flatMap { try? JSONSerialization.jsonObject(with: $0) }
            return (object as? [String: Any])?["exp"] as? Int
        }

        private static func moment(_ text: String) -> Double? {
            let formatter = ISO8601DateFormatter()
            formatter.formatOptions = [.withInternetDateTime, .withFractionalSeconds]
            return formatter.date(from: text)?.timeIntervalSince1970
        }
    }
}
