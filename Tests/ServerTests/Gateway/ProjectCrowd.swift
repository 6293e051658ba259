import Crypto
import Diagnostics
import Embedded
import Foundation
import Postgres
import Synchronization
import System
import TestSupport
import Testing

@testable import Gateway
@testable import Server
@testable import Settings

/// Hub with several projects that use the same secret. Each has its own database and its own rate limit. The rate limit
/// in an answer identifies the project that answered.
final class ProjectCrowd: @unchecked Sendable {
    // One thread starts and stops the hub; any thread may make requests.
    static let operators = "a secret of operators, which is longer than thirty-two bytes"
    static let own = "realtime-dev"
    static let others = ["alpha", "beta"]
    /// Rate limit in `x-rate-limit` of each project's answers.
    static let rates = ["realtime-dev": 1000, "alpha": 2001, "beta": 3002]

    let stage: GatewayStage
    let port: UInt16
    private let databases: [String: TestDatabase]
    let token: String

    init(_ settings: [(Setting, String)] = []) throws {
        port = try FreePort.find()
        stage = try GatewayStage(
            "CREATE TABLE notes (id int PRIMARY KEY); GRANT SELECT ON notes TO READER;", publication: "FOR ALL TABLES",
            [
                (Setting(\.operatorSecret), Self.operators), (Setting(\.listen), "127.0.0.1:\(port)"),
                (Setting(\.eventsPerSecond), "1000"),
            ] + settings)
        token = stage.token()
        var databases: [String: TestDatabase] = [:]
        for name in Self.others {
            let database = try TestDatabase()
            try database.run("CREATE TABLE notes (id int PRIMARY KEY)")
            try database.run("CREATE PUBLICATION supabase_realtime FOR ALL TABLES")
            databases[name] = database
        }
        self.databases = databases
        for name in Self.others { try create(name) }
    }

    deinit {
        for name in Self.others { _ = try? administer("DELETE", name) }
        for (_, database) in databases {
            _ = try? database.run(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
            )
        }
    }

    func description(_ name: String) throws -> String {
        let database = try #require(databases[name])
        let url = database.cluster.url(user: "postgres", password: "", database: database.name)
        return #"{"tenant":{"external_id":"\#(name)","jwt_secret":"\#(GatewayStage.secret)","#
            + #""max_events_per_second":\#(Self.rates[name] ?? 0),"extensions":[{"type":"postgres_cdc_rls","#
            + #""settings":{"database_url":"\#(url)","slot_name":"\#(database.slot)"}}]}}"#
    }

    func create(_ name: String) throws {
        let answer = try administer("PUT", name, body: description(name))
        try #require(answer.status == 201, "\(answer)")
    }

    // MARK: Damage

    func directory(_ name: String) throws -> String {
        let told = try JSONSerialization.jsonObject(with: Data(administer("GET", name).body.utf8)) as? [String: Any]
        let id = try #require((told?["data"] as? [String: Any])?["id"] as? String)
        return stage.dataDirectory + "/projects/" + id
    }

    /// Replaces the project's log with another file, so that the project cannot start again.
    func damage(_ name: String) throws {
        let directory = try directory(name)
        try Directories.move(directory + "/log", to: directory + "/elsewhere")
        try Data().write(to: URL(fileURLWithPath: directory + "/log"))
        let answer = try administer("POST", name, "/reload")
        try #require(answer.status == 500, "\(answer)")
    }

    func mend(_ name: String) throws {
        let directory = try directory(name)
        try FileManager.default.removeItem(atPath: directory + "/log")
        try Directories.move(directory + "/elsewhere", to: directory + "/log")
    }

    // MARK: Requests

    struct Answer: CustomStringConvertible {
        let status: Int
        let headers: [String: String]
        let body: String

        /// Project that answered, if the answer identifies it.
        var project: String? {
            guard let rate = headers["x-rate-limit"].flatMap({ Int($0) }) else { return nil }
            return ProjectCrowd.rates.first { $0.value == rate }?.key ?? "somebody with the rate \(rate)"
        }
        var epoch: String? {
            let told = try? JSONSerialization.jsonObject(with: Data(body.utf8)) as? [String: Any]
            return (told?["position"] as? String)?.split(separator: "-").first.map { String($0) }
        }
        var description: String { "\(status) \(headers) \(body)" }
    }

    func ask(_ head: String, body: String = "") throws -> Answer {
        let caller = try Caller(port: port)
        defer { caller.hangUp() }
        let length = body.isEmpty ? "" : "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n"
        try caller.send("\(head)\r\nConnection: close\r\n\(length)\r\n\(body)")
        let lines = try caller.read(through: "\r\n\r\n").split(separator: "\r\n").map { String($0) }
        let headers = Dictionary(
            lines.dropFirst().compactMap { line in
                line.firstIndex(of: ":").map { colon in
                    (
                        line[..<colon].lowercased(),
                        line[line.index(after: colon)...].trimmingCharacters(in: .whitespaces)
                    )
                }
            }, uniquingKeysWith: { $1 })
        let status = Int(lines[0].split(separator: " ")[1]) ?? 0
        let count = headers["content-length"].flatMap { Int($0) } ?? 0
        return Answer(status: status, headers: headers, body: status == 101 ? "" : try caller.read(count))
    }

    func administer(_ method: String, _ name: String, _ more: String = "", body: String = "") throws -> Answer {
        let expiry = Int(Date().timeIntervalSince1970) + 3600
        let token = JWT.sign(claims: Array(#"{"exp":\#(expiry)}"#.utf8).span, secret: Array(Self.operators.utf8).span)
        return try ask(
            "\(method) /api/tenants/\(name)\(more) HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer \(token)", body: body)
    }

    /// Performs an operator's request, and expects an empty answer.
    func carryOut(_ method: String, _ name: String, _ more: String) throws {
        let answer = try administer(method, name, more)
        #expect(answer.status == 204, "\(method) \(name)\(more): \(answer)")
    }

    func isReady(_ name: String) throws -> Bool {
        try ask("GET /ready/\(name) HTTP/1.1\r\nHost: h").status == 200
    }

    /// Kinds of requests to a project, each with the status of a successful answer.
    enum Way: CaseIterable {
        case ping, changes, broadcast, broadcastOne, socket

        var served: Int {
            switch self {
            case .ping, .changes: 200
            case .broadcast, .broadcastOne: 202
            case .socket: 101
            }
        }
    }

    /// Makes a request of this kind for a host name.
    ///
    /// - Parameter host: name in the Host header. If `absolute` is true, the name in the request's absolute URL
    ///   instead, while the Host header names another project.
    func ask(_ way: Way, host: String, absolute: Bool = false) throws -> Answer {
        let start = absolute ? "http://\(host)" : ""
        let headers =
            " HTTP/1.1\r\nHost: \(absolute ? "\(Self.others[0]).elsewhere:1" : host)\r\nAuthorization: Bearer \(token)"
        let broadcast = #"{"messages":[{"topic":"t","event":"e","payload":{}}]}"#
        switch way {
        case .ping: return try ask("GET \(start)/api/ping\(headers)")
        case .changes: return try ask("GET \(start)/api/changes?table=notes\(headers)")
        case .broadcast: return try ask("POST \(start)/api/broadcast\(headers)", body: broadcast)
        case .broadcastOne: return try ask("POST \(start)/api/broadcast/t/events/e\(headers)", body: "{}")
        case .socket:
            return try ask(
                "GET \(start)/realtime/v1/websocket?vsn=2.0.0&apikey=\(token)\(headers)\r\nUpgrade: websocket\r\n"
                    + "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
        }
    }
}

/// Port that nothing listens on.
enum FreePort {
    static func find() throws -> UInt16 {
        var random = SystemRandomNumberGenerator()
        for _ in 0..<100 {
            let port = UInt16.random(in: 20_000..<32_000, using: &random)
            guard let client = try? TestClient(port: port) else { return port }
            client.close()
        }
        throw Unexpected(message: "there is no free port")
    }
}
