import Foundation
import Ingest
import System
import TestSupport
import Testing
import TidewireClient

/// Tests of the operators' API of a running hub.
extension EndToEndPrograms {
    @Suite(.serialized) struct OperatorTests {
        private struct Answer {
            var status: Int
            var type: String
            var body: String
        }

        private static func started() throws -> HubForApps {
            let hub = try HubForApps([
                "TIDEWIRE_OPERATOR_JWT_SECRET": HubForApps.operatorSecret, "TIDEWIRE_LEDGER": "ranges",
            ])
            try hub.start()
            try eventually("the hub to be ready") { (try? ask(hub, "GET", "/ready/realtime-dev"))?.status == 200 }
            _ = try hub.ask("INSERT INTO reminders (owner_id, message) VALUES ('\(UUID())', 'one')")
            let log = IngestService.Settings.logDirectory(hub.dataDirectory)
            try eventually("the log to have it") {
                try said(by: [ServedHub.program, "tail", "--from", "oldest", "--log", log]).output.contains("one")
            }
            return hub
        }

        private static func ask(
            _ hub: HubForApps, _ method: String, _ path: String, _ body: String = "", token: String? = nil
        ) throws -> Answer {
            let client = try TestClient(port: hub.port)
            try client.send(
                """
                \(method) \(path) HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer \
                \(token ?? HubForApps.operatorToken)\r\nContent-Type: application/json\r\nContent-Length: \
                \(body.utf8.count)\r\n\r\n\(body)
                """)
            let text = String(decoding: try client.receiveAll(), as: UTF8.self)
            let head = text.components(separatedBy: "\r\n\r\n")
            let type = head[0].split(separator: "\r\n").first { $0.lowercased().hasPrefix("content-type:") }
            return Answer(
                status: text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0,
                type: type.map { $0.dropFirst("content-type:".count).trimmingCharacters(in: .whitespaces) } ?? "",
                body: head.dropFirst().joined(separator: "\r\n\r\n"))
        }

        private static func command(
            _ words: [String], _ hub: HubForApps, token: String = HubForApps.operatorToken
        ) throws -> (output: String, code: Int32?) {
            let (output, code) = try said(
                by: [ServedHub.program] + words + ["--server", "http://127.0.0.1:\(hub.port)"],
                environment: ["OPERATOR_TOKEN": token], withErrors: true)
            return (output, code)
        }

        /// Query and body with which an operation of the description is called.
        private static let examples: [String: (query: String, body: String)] = [
            "changes": ("?table=reminders", ""), "signalTenant": ("", #"{"text":"a mark"}"#),
            "kickClients": ("", #"{"user":"nobody","seconds":60,"because":"a test"}"#),
            "endBlock": ("?user=nobody", ""),
            "askLogAll": ("", #"{"questions":[{"command":"stats","json":true},{"command":"info"}]}"#),
            "countRow": ("?table=reminders&key=\(UUID())", ""), "forgetRow": ("?table=reminders&key=\(UUID())", ""),
            "fetchAnswerPart": ("?name=question-1-a&from=0", ""),
            "patchTenant": ("", #"{"tenant":{"max_joins_per_second":77}}"#),
            "putTenant": ("", #"{"tenant":{"max_joins_per_second":78}}"#),
            "createTenant": ("", #"{"tenant":{"external_id":"none"}}"#),
            "broadcast": ("", #"{"messages":[]}"#), "broadcastOne": ("", "{}"),
        ]

        /// Every operation is called as described. What is served and not described is found by `OpenAPITests`.
        @Test func `each operation that is described is served, and answers as described`() throws {
            let hub = try Self.started()
            let text = try Self.ask(hub, "GET", "/api/openapi").body
            let document = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
            let paths = try #require(document["paths"] as? [String: [String: Any]])
            var called = 0
            // Operations that end a project's clients come last.
            let last = ["reload", "shutdown"]
            let order = paths.keys.sorted { one, other in
                let (late, later) = (last.contains { one.hasSuffix($0) }, last.contains { other.hasSuffix($0) })
                return late == later ? one < other : !late
            }
            for path in order {
                let methods = (paths[path] ?? [:]).keys.filter { $0 != "parameters" }
                // What a DELETE takes away is asked about before.
                for method in methods.sorted(by: { ($0 == "delete" ? 1 : 0, $0) < ($1 == "delete" ? 1 : 0, $1) }) {
                    let operation = try #require(paths[path]?[method] as? [String: Any])
                    let name = try #require(operation["operationId"] as? String)
                    // Other tests of this suite open sockets and follow the log.
                    guard name != "openSocket", name != "followLog" else { continue }
                    let responses = try #require(operation["responses"] as? [String: Any])
                    let example = Self.examples[name] ?? ("", "")
                    let target =
                        path.replacing("{id}", with: name == "deleteTenant" ? "none" : "realtime-dev").replacing(
                            "{command}", with: "stats"
                        )
                        .replacing("{signal}", with: "mark").replacing("{topic}", with: "a")
                        .replacing("{event}", with: "b") + example.query
                    let token = path.hasPrefix("/api/tenants") ? nil : hub.token(UUID())
                    let answer = try Self.ask(hub, method.uppercased(), target, example.body, token: token)
                    #expect(
                        responses.keys.contains("\(answer.status)"),
                        "\(method) \(target): \(answer.status) \(answer.body)")
                    #expect(answer.status < 500 && answer.status != 405, "\(method) \(target): \(answer.body)")
                    #expect(answer.body != #""Not Found""#, "\(method) \(target)")
                    called += 1
                }
            }
            #expect(called > 20)
        }

        @Test func `roles decide what an operator may ask, and the command says which role is missing`() throws {
            let hub = try Self.started()
            let viewer = HubForApps.operatorToken(#","tidewire_role":"viewer""#)
            let analyst = HubForApps.operatorToken(#","tidewire_role":"analyst""#)
            #expect(try Self.command(["stats"], hub, token: viewer).code == 0)
            let refused = try Self.command(["tail", "--from", "oldest"], hub, token: viewer)
            #expect(refused.code == 4 && refused.output.contains("needs the role analyst"), "\(refused)")
            #expect(try Self.command(["tail", "--from", "oldest"], hub, token: analyst).code == 0)
            let unmasking = try Self.command(
                ["tail", "--from", "oldest", "--unmask", "*", "--because", "x"], hub, token: analyst)
            #expect(unmasking.code == 4 && unmasking.output.contains("needs the role admin"), "\(unmasking)")
            #expect(try Self.command(["session"], hub, token: analyst).code != 2)
            #expect(try Self.command(["policies", "--from", "oldest"], hub, token: analyst).code != 2)
            let doctor = try Self.command(["doctor", "--json"], hub, token: analyst)
            #expect(doctor.output.contains(#""area""#) && !doctor.output.contains(HubForApps.secret), "\(doctor)")
            let config = try Self.ask(hub, "GET", "/api/tenants/realtime-dev/config", token: analyst)
            #expect(config.body.contains(#""name":"operator_default_role","value":"admin""#), "\(config)")
            #expect(!config.body.contains(HubForApps.secret) && !config.body.contains(HubForApps.operatorSecret))
        }

        /// A client that is blocked hears why, cannot come back by another hub process, and can when the block has ended.
        @Test func `a user who is cut off is told, and a block survives the hub`() throws {
            let hub = try Self.started()
            let person = UUID()
            let name = person.uuidString.lowercased()
            let stays = try TestClient(port: hub.port)
            #expect(try stays.joined(as: hub.token(person)).contains(#""status":"ok""#))
            let kick = try Self.command(["kick", name, "--for", "1h", "--because", "ticket 17"], hub)
            #expect(kick.code == 0 && kick.output.contains("blocked until"), "\(kick)")
            let told = stays.rest
            #expect(told.contains("Blocked"), "\(told)")
            let refusal = try Self.ask(hub, "GET", "/api/changes?table=reminders", token: hub.token(person))
            #expect(refusal.status == 403, "\(refusal)")
            hub.kill()
            try hub.start()
            try eventually("the hub to be ready") {
                (try? Self.ask(hub, "GET", "/ready/realtime-dev"))?.status == 200
            }
            #expect(try Self.ask(hub, "GET", "/api/changes?table=reminders", token: hub.token(person)).status == 403)
            #expect(try Self.ask(hub, "GET", "/api/changes?table=reminders", token: hub.token(UUID())).status == 200)
            let list = try Self.command(["kick", "--list"], hub)
            #expect(list.output.contains(name) && list.output.contains("ops@example.com"), "\(list)")
            #expect(try Self.command(["kick", name, "--undo"], hub).code == 0)
            #expect(try Self.ask(hub, "GET", "/api/changes?table=reminders", token: hub.token(person)).status == 200)
            let audit = try Self.command(["log", "audit"], hub)
            #expect(audit.output.contains("kick") && audit.output.contains("because: ticket 17"), "\(audit)")
        }

        @Test func `several questions are answered by one request, each as if asked alone`() throws {
            let hub = try Self.started()
            let body =
                #"{"questions":[{"command":"tail","from":"oldest","json":true},{"command":"event","offset":"999999"},"#
                + #"{"command":"stats","json":true}]}"#
            let answer = try Self.ask(hub, "POST", "/api/tenants/realtime-dev/log", body)
            let lines = answer.body.split(separator: "\n").compactMap {
                try? JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any]
            }
            #expect(lines.map { $0["command"] as? String } == ["tail", "event", "stats"], "\(answer)")
            #expect(lines.map { $0["exit_code"] as? Int } == [0, 1, 0], "\(answer)")
            #expect((lines.first?["output"] as? String)?.contains("one") == true)
            let viewer = HubForApps.operatorToken(#","tidewire_role":"viewer""#)
            #expect(try Self.ask(hub, "POST", "/api/tenants/realtime-dev/log", body, token: viewer).status == 403)
        }

        @Test func `a stream sends new changes, masked, and says that it is alive`() throws {
            let hub = try Self.started()
            let client = try TestClient(port: hub.port)
            try client.send(
                "GET /api/tenants/realtime-dev/log/follow?mask=message HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer "
                    + "\(HubForApps.operatorToken)\r\n\r\n")
            var text = ""
            func comes(_ wanted: String) throws {
                let deadline = Date().addingTimeInterval(60)
                while !text.contains(wanted) {
                    try #require(Date() < deadline, "\(wanted) in \(text)")
                    var bytes: [UInt8] = []
                    try #require(try client.receive(appendingTo: &bytes), "the stream ended: \(text)")
                    text += String(decoding: bytes, as: UTF8.self)
                }
            }
            try comes("chunked")
            _ = try hub.ask("INSERT INTO reminders (owner_id, message) VALUES ('\(UUID())', 'two secrets')")
            try comes(#""op":"INSERT""#)
            #expect(!text.contains("two secrets") && !text.contains(#""one""#), "\(text)")
            try comes(#""op":"HEARTBEAT""#)
            let wrong = try Self.ask(hub, "GET", "/api/tenants/realtime-dev/log/follow?where=")
            #expect(wrong.status == 400, "\(wrong)")
        }
    }
}

extension TestClient {
    /// Opens a WebSocket, joins a channel and returns what comes until the join is answered.
    fileprivate func joined(as token: String) throws -> String {
        try send(
            "GET /realtime/v1/websocket?apikey=\(token)&vsn=1.0.0 HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n"
                + "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        let join = Array(#"{"topic":"realtime:a","event":"phx_join","payload":{},"ref":"1"}"#.utf8)
        // A mask of zeros leaves the text as it is.
        try send([0x81, 0x80 | UInt8(join.count), 0, 0, 0, 0] + join)
        var bytes: [UInt8] = []
        while !String(decoding: bytes, as: UTF8.self).contains("phx_reply") {
            guard try receive(appendingTo: &bytes) else { break }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Everything that comes until the peer closes or resets the connection.
    fileprivate var rest: String {
        var bytes: [UInt8] = []
        while (try? receive(appendingTo: &bytes)) == true {}
        return String(decoding: bytes, as: UTF8.self)
    }
}
