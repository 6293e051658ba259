import Crypto
import Diagnostics
import Embedded
import Foundation
import Postgres
import System
import TestSupport
import Testing

@testable import Gateway
@testable import Server
@testable import Settings

/// Second project on its own database, created through the operators' API.
final class SecondProject {
    static let operators = "a secret of operators, which is longer than thirty-two bytes"
    static let secret = "a secret of the second project, longer than thirty-two bytes"
    let stage: GatewayStage
    let name = "second"
    let database: TestDatabase

    init(_ settings: [(Setting, String)] = []) throws {
        stage = try GatewayStage(
            "CREATE TABLE notes (id int PRIMARY KEY); GRANT SELECT ON notes TO READER;", publication: "FOR ALL TABLES",
            [(Setting(\.operatorSecret), Self.operators)] + settings)
        database = try TestDatabase()
        try database.run("CREATE TABLE notes (id int PRIMARY KEY)")
        try database.run("CREATE PUBLICATION supabase_realtime FOR ALL TABLES")
        let answer = try administer("PUT", body: description())
        try #require(answer.status.contains("20"), "\(answer)")
    }

    deinit {
        _ = try? administer("DELETE")
        _ = try? database.run(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '\(database.slot)'")
    }

    /// Returns the directory of the project's data.
    func directory() throws -> String {
        let told = try JSONSerialization.jsonObject(with: Data(administer("GET").body.utf8)) as? [String: Any]
        let id = try #require((told?["data"] as? [String: Any])?["id"] as? String)
        return stage.dataDirectory + "/projects/" + id
    }

    func description(slot: String? = nil, of other: TestDatabase? = nil) -> String {
        let database = other ?? database
        let url = database.cluster.url(user: "postgres", password: "", database: database.name)
        return
            #"{"tenant":{"external_id":"\#(name)","jwt_secret":"\#(Self.secret)","extensions":[{"type":"postgres_cdc_rls","#
            + #""settings":{"database_url":"\#(url)","slot_name":"\#(slot ?? database.slot)"}}]}}"#
    }

    /// Sends an operator's request about this project.
    @discardableResult
    func administer(_ method: String, _ more: String = "", body: String = "") throws -> (status: String, body: String) {
        let expiry = Int(Date().timeIntervalSince1970) + 3600
        let token = JWT.sign(
            claims: Array(#"{"exp":\#(expiry)}"#.utf8).span, secret: Array(Self.operators.utf8).span)
        let caller = try Caller(port: stage.hub.port)
        defer { caller.hangUp() }
        let type = body.isEmpty ? "" : "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n"
        try caller.send(
            "\(method) /api/tenants/\(name)\(more) HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer \(token)\r\n\(type)\r\n\(body)"
        )
        return try caller.answer()
    }

    func get(_ path: String, host: String = "h") throws -> (status: String, body: String) {
        let caller = try Caller(port: stage.hub.port)
        defer { caller.hangUp() }
        try caller.send("GET \(path) HTTP/1.1\r\nHost: \(host)\r\n\r\n")
        return try caller.answer()
    }

    /// True if a project answers for this host name.
    func served(host: String) throws -> Bool { try get("/api/ping", host: host).status.contains("200") }
}

extension Gateways {
    /// Tests of a hub with several projects: answers and states of each.
    @Suite(.serialized) struct SeveralProjectsTests {
        @Test func `unknown host names are answered as the settings say`() throws {
            for (choice, whereSeveral, whereOne) in [
                ("single", false, true), ("main", true, true), ("refuse", false, false),
            ] {
                let second = try SecondProject([(Setting(\.unknownHosts), choice)])
                #expect(try second.served(host: "second.example") && second.served(host: "realtime-dev.example"))
                #expect(try second.served(host: "nobody.example") == whereSeveral, "\(choice)")
                #expect(try second.administer("DELETE").status.contains("204"))
                #expect(try second.served(host: "nobody.example") == whereOne, "\(choice)")
                #expect(try second.served(host: "realtime-dev:4000"))
            }
        }

        @Test func `ready says how many projects are not, and each can be asked for itself`() throws {
            let second = try SecondProject()
            #expect(try eventually { try second.get("/ready/second").status.contains("200") })
            #expect(try second.get("/ready/realtime-dev").body.hasPrefix(#"{"ready":true,"#))
            let all = try second.get("/ready")
            #expect(
                all.status.contains("200") && all.body.contains(#""projects":2,"projects_not_ready":0,"not_ready":[]"#))
            #expect(try second.get("/ready/nobody").status.contains("404"))
            try second.stage.away("tidewire replication", of: second.database) {
                #expect(try eventually { try second.get("/ready/second").status.contains("503") })
                let others = try second.get("/ready")
                #expect(others.status.contains("200") && others.body.hasPrefix(#"{"ready":true,"#))
                #expect(others.body.contains(#""projects":2,"projects_not_ready":1,"not_ready":["second"]"#))
                #expect(try second.get("/ready/realtime-dev").status.contains("200"))
            }
        }

        @Test func `which projects are not ready is told to those who may read the metrics`() throws {
            let second = try SecondProject([
                (Setting(\.metricsSecret), "a secret of metrics, longer than thirty-two bytes")
            ])
            let body = try second.get("/ready").body
            #expect(body.contains(#""projects":2,"projects_not_ready":"#) && !body.contains("\"not_ready\""))
        }

        private func hasSlot(_ second: SecondProject, _ slot: String? = nil) throws -> Bool {
            let name = slot ?? second.database.slot
            return try second.database.value(
                "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '\(name)'") == "1"
        }

        @Test func `a deleted project's slot goes, and its log stays unless told otherwise`() throws {
            for (query, stays) in [("", true), ("?log=keep", true), ("?log=delete", false)] {
                let second = try SecondProject()
                #expect(try eventually { try second.get("/ready/second").status.contains("200") })
                let directory = try second.directory()
                #expect(try hasSlot(second) && Directories.isDirectory(directory + "/log"))
                #expect(try second.administer("DELETE", query).status.contains("204"))
                #expect(try !hasSlot(second) && Directories.isThere(directory) == stays)
                #expect(try second.get("/ready/second").status.contains("404"))
            }
            let second = try SecondProject()
            #expect(try second.administer("DELETE", "?log=maybe").status.contains("422"))
            #expect(try second.get("/ready/second").status.contains("404") == false)
        }

        @Test func `also where the project does not run just then`() throws {
            let second = try SecondProject()
            // A slot may be visible while it is still being created. Then it would not be kept.
            #expect(try eventually { try second.get("/ready/second").status.contains("200") })
            let directory = try second.directory()
            // Another file has the name of the log, so the project cannot start again.
            #expect(throws: Never.self) { try Directories.move(directory + "/log", to: directory + "/elsewhere") }
            try Data().write(to: URL(fileURLWithPath: directory + "/log"))
            #expect(try second.administer("POST", "/reload").status.contains("500"))
            #expect(try second.get("/ready/second").status.contains("503"))
            #expect(try hasSlot(second))
            #expect(try second.administer("DELETE", "?log=delete").status.contains("204"))
            #expect(try !hasSlot(second) && !Directories.isThere(directory))
        }

        @Test func `a slot that another project may have stays`() throws {
            let second = try SecondProject()
            let own = second.stage.database
            let taken = second.description(slot: own.slot, of: own)
            #expect(try second.administer("PUT", body: taken).status.contains("422"))
            // One server has many addresses; the hub does not recognize these two as the same server.
            let elsewhere = taken.replacing("127.0.0.1", with: "localhost")
            #expect(try second.administer("PUT", body: elsewhere).status.contains("20"))
            #expect(try second.administer("DELETE").status.contains("204"))
            #expect(try hasSlot(second, own.slot))
            try second.stage.run("INSERT INTO notes VALUES (1)")
            try second.stage.awaitLog()
        }

        @Test func `what is delivered is measured by table`() throws {
            let tables =
                "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY);"
                + "CREATE TABLE c (id int PRIMARY KEY); GRANT SELECT ON a, b, c TO READER;"
            let stage = try GatewayStage(tables, publication: "FOR ALL TABLES", [(Setting(\.measuredTables), "2")])
            let caller = try stage.caller()
            try caller.subscribe("realtime:x", [binding("a"), binding("b"), binding("c")])
            try stage.run(
                "INSERT INTO a SELECT generate_series(1, 5); INSERT INTO b VALUES (6); INSERT INTO c VALUES (7)")
            try stage.run("INSERT INTO a VALUES (8)")
            #expect(try caller.ids(8) == Array(1...8))
            try caller.fence()
            let text = String(decoding: stage.processMetrics.render([stage.metrics]), as: UTF8.self)
            #expect(text.contains("tidewire_table_deliveries_total{table=\"public.a\"} 6\n"))
            #expect(text.contains("tidewire_table_deliveries_total{table=\"public.b\"} 1\n"))
            #expect(text.contains("tidewire_table_deliveries_total{table=\"other\"} 1\n"))
            #expect(text.contains("tidewire_table_commit_to_socket_seconds_count{table=\"public.a\"} 2\n"))
            #expect(text.contains("tidewire_table_lag_seconds{table=\"public.a\"} "))
        }

        @Test func `refused tokens are counted by what was wrong with them, for each project`() throws {
            let second = try SecondProject()
            let stage = second.stage
            func upgrade(_ key: String?, host: String = "realtime-dev", answered status: String = "401") throws {
                let caller = try Caller(port: stage.hub.port)
                defer { caller.hangUp() }
                let head = Caller.upgrade(key ?? "").replacing("Host: h\r\n", with: "Host: \(host)\r\n")
                try caller.send(key == nil ? head.replacing("apikey=&", with: "") : head)
                #expect(try caller.answer().status.contains(status), "\(key ?? "")")
            }
            let header = #"{"alg":"ES256","kid":"none","typ":"JWT"}"#
            let unknownKey = Data(header.utf8).base64EncodedString().replacing("=", with: "") + ".e30.e30"
            let foreign = JWT.sign(
                claims: Array(#"{"role":"anon","exp":4000000000}"#.utf8).span,
                secret: Array("another secret, which is also longer than thirty-two".utf8).span)
            let keys: [(String?, ProjectMetrics.TokenRefusal)] = [
                (nil, .missing), ("nonsense", .malformed), (unknownKey, .unknownKey), (foreign, .badSignature),
                (stage.token(lasting: -5), .expired), (stage.token(of: 1, #","nbf":3999999999"#), .notYetValid),
                (stage.token("postgres"), .wrongRole), (stage.token(claims: #"{"exp":4000000000}"#), .claimsMissing),
                (stage.token(of: 1, #","iat":"soon""#), .wrongClaim),
            ]
            #expect(Set(keys.map(\.1)) == Set(ProjectMetrics.TokenRefusal.allCases))
            // Like Supabase Realtime, the hub answers a wrong claim with an internal error.
            for (key, reason) in keys { try upgrade(key, answered: reason == .wrongClaim ? "500" : "401") }
            for (_, reason) in keys { #expect(stage.metrics.tokensRefused[reason].value == 1, "\(reason)") }
            try upgrade(stage.token(), host: second.name)
            let text = try second.get("/metrics").body
            #expect(text.contains(#"tidewire_tokens_refused_total{reason="bad_signature",tenant="second"} 1"#))
            #expect(text.contains(#"tidewire_tokens_refused_total{reason="bad_signature"} 1"#))
            // A join and a token refresh count, too. The test's callers name no project.
            try second.administer("DELETE")
            let caller = try stage.caller()
            let ref = try caller.push("realtime:a", "phx_join", Caller.join([], token: foreign))
            _ = try caller.first { $0.ref == ref && $0.status == "error" }
            #expect(stage.metrics.tokensRefused[.badSignature].value == 2)
            let joined = try caller.join("realtime:b", [])
            try caller.push("realtime:b", "access_token", #"{"access_token":"nonsense"}"#, joinRef: joined)
            try caller.fence()
            #expect(stage.metrics.tokensRefused[.malformed].value == 2)
        }
    }
}
