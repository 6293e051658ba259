import Bytes
import TestSupport
import Testing
import WebSocket

@testable import Projects
@testable import Settings

@Suite(.within(minutes: 10)) struct TenantsAPITests {
    private let store: ProjectStore
    private let api: TenantsAPI
    private let own: ProjectRecord

    private static let secret = "operators"
    private static let lasting = #"{"exp":\#(stageTime + 3600)}"#

    init() throws {
        store = try ProjectStore(in: MemoryDirectory(), key: Secret("k"))
        own = try recorded(tenantText("realtime-dev"))
        api = TenantsAPI(
            store, configured: own, operators: OperatorGate([Secret(Self.secret)], withdrawn: nil, clients: nil),
            stageDefaults)
    }

    private func ask(
        _ method: String, _ path: String, _ body: [UInt8] = [], accept: String? = nil,
        authorization: String? = "Bearer \(token(lasting, secret: secret))"
    ) throws -> TenantsOutcome {
        var headers: [String: String] = [:]
        headers["accept"] = accept
        headers["authorization"] = authorization
        return api.handle(try request(method, path, headers), body: body, at: stageTime)
    }

    private func response(
        _ method: String, _ path: String, _ body: [UInt8] = [], accept: String? = nil,
        authorization: String? = "Bearer \(token(lasting, secret: secret))"
    ) throws -> HTTPResponse? {
        guard
            case .response(let response) = try ask(method, path, body, accept: accept, authorization: authorization)
        else { return nil }
        return response
    }

    private func operation(_ method: String, _ path: String, _ body: [UInt8] = []) throws -> TenantsOperation? {
        guard case .operation(let operation, _) = try ask(method, path, body) else { return nil }
        return operation
    }

    private func text(_ response: HTTPResponse?) -> String { String(decoding: response?.body ?? [], as: UTF8.self) }

    /// Stores an accepted description as the hub does, and returns the response.
    private func carryOut(_ operation: TenantsOperation?) throws -> HTTPResponse {
        guard case .upsert(let description) = operation else { throw NoRequest() }
        let applied = try store.apply(description, configured: own, stageDefaults, at: stageTime)
        return api.stored(applied.record, isNew: applied.old == nil)
    }

    @Test func `creates, tells, changes and lists projects`() throws {
        let created = try carryOut(operation("POST", "/api/tenants", body(tenantText("app"))))
        #expect(created.status == .created)
        let id = try #require(store.record(named: "app")?.id)
        #expect(created.headers.contains(HTTPHeader("location", "/api/tenants/\(id)")))
        let told = try #require(try response("GET", "/api/tenants/app"))
        #expect(told.status == .ok && text(told) == text(created))
        let changed = try carryOut(operation("PATCH", "/api/tenants/app", body(#"{"suspend":true}"#)))
        #expect(changed.status == .ok && text(changed).contains(#""suspend":true"#))
        #expect(try carryOut(operation("PUT", "/api/tenants/new", body(tenantText("new")))).status == .created)
        for method in ["PUT", "PATCH"] {
            let other = try #require(try response(method, "/api/tenants/app", body(#"{"external_id":"else"}"#)))
            #expect(
                other.status == .unprocessableContent
                    && text(other) == #"{"errors":{"external_id":["can't be changed"]}}"#)
            #expect(try carryOut(operation(method, "/api/tenants/app", body(#"{"external_id":"app"}"#))).status == .ok)
        }
        #expect(try carryOut(operation("POST", "/api/tenants", body(tenantText("app")))).status == .ok)
        let list = try #require(json(text(try response("GET", "/api/tenants"))).object?["data"]?.array)
        #expect(list.compactMap { $0.object?["external_id"]?.string } == ["realtime-dev", "app", "new"])
    }

    @Test func `tells a project as the reference does, without its password and secrets`() throws {
        let tenant = try json(text(try response("GET", "/api/tenants/realtime-dev"))).object?["data"]?.object
        let object = try #require(tenant)
        #expect(object["id"]?.string == own.id && object["external_id"]?.string == "realtime-dev")
        #expect(object["inserted_at"]?.string == "2027-01-15T08:00:00")
        #expect(object["max_client_presence_events_per_window"] == .null)
        #expect(object["max_concurrent_users"] == .number(10_000) && object["private_only"] == .bool(false))
        #expect(object["jwt_secret"] == nil && object["jwt_jwks"] == nil)
        let described = try #require(object["extensions"]?.array?.first?.object)
        #expect(described["type"]?.string == "postgres_cdc_rls")
        #expect(described["inserted_at"]?.string == "2027-01-15T08:00:00")
        let settings = try #require(described["settings"]?.object)
        #expect(settings["db_password"] == nil)
        for name in ["db_host", "db_name", "db_port", "db_user"] {
            #expect(settings[name]?.string?.hasPrefix("t1:") == true, "\(name)")
        }
        #expect(settings["region"]?.string == "us-east-1" && settings["poll_interval_ms"] == .number(100))
        #expect(settings["slot_name"]?.string == "supabase_realtime_replication_slot")
        #expect(settings["ssl_enforced"] == .bool(true))
    }

    @Test(arguments: ["GET", "HEAD", "POST reload", "POST shutdown", "GET health", "HEAD health"])
    func `says 404 for a project that is not there`(call: String) throws {
        let parts = call.split(separator: " ")
        let path = "/api/tenants/none" + (parts.count > 1 ? "/\(parts[1])" : "")
        let found = try response(String(parts[0]), path)
        #expect(found?.status == .notFound && text(found) == #"{"message":"not found"}"#)
    }

    @Test func `hands on what has to be done`() throws {
        let path = "/api/tenants/realtime-dev"
        #expect(try operation("POST", path + "/reload") == .reload("realtime-dev"))
        #expect(try operation("POST", path + "/shutdown") == .shutdown("realtime-dev"))
        #expect(try operation("GET", path + "/health") == .health("realtime-dev"))
        #expect(try operation("HEAD", "/realtime/v1" + path + "/health") == .health("realtime-dev"))
        #expect(try operation("DELETE", "/api/tenants/none") == .delete("none", log: .keep))
        #expect(try operation("DELETE", "/api/tenants/none?log=delete") == .delete("none", log: .delete))
        #expect(try operation("DELETE", "/api/tenants/none?log=keep") == .delete("none", log: .keep))
        #expect(try operation("DELETE", "/api/tenants/a%2Fb") == .delete("a/b", log: .keep))
    }

    @Test func `does not delete the project of the settings unless another took its place`() throws {
        #expect(try response("DELETE", "/api/tenants/realtime-dev")?.status == .unprocessableContent)
        _ = try carryOut(operation("PATCH", "/api/tenants/realtime-dev", body(#"{"suspend":true}"#)))
        #expect(try operation("DELETE", "/api/tenants/realtime-dev") == .delete("realtime-dev", log: .keep))
        let list = try #require(json(text(try response("GET", "/api/tenants"))).object?["data"]?.array)
        #expect(list.count == 1)
    }

    @Test(arguments: [
        ("{", 400, #"{"message":"the body is not JSON"}"#), ("", 400, #"{"message":"the body is not JSON"}"#),
        ("{}", 422, #"{"errors":{"tenant":["can't be blank"]}}"#),
        (#"{"tenant":[]}"#, 422, #"{"errors":{"tenant":["can't be blank"]}}"#),
        (
            #"{"tenant":{"external_id":"a","extensions":[{"type":"postgres","settings":{"region":"r","db_host":"h","#
                + #""db_name":"d","db_user":"u","db_port":1,"db_password":"p"}}]}}"#, 422,
            #"{"errors":{"extensions":[{"settings":["db_port is invalid"]}]}}"#
        ),
    ])
    func `refuses a body that describes nothing`(given: String, status: UInt16, answer: String) throws {
        let refused = try response("POST", "/api/tenants", Array(given.utf8))
        #expect(refused?.status.rawValue == status && text(refused) == answer)
    }

    @Test func `refuses a body that is too large before it looks at it`() throws {
        let large = [UInt8](repeating: UInt8(ascii: " "), count: 300 << 10)
        #expect(try response("POST", "/api/tenants", large)?.status == .contentTooLarge)
    }

    @Test(arguments: [
        ("GET", "/api/tenant"), ("DELETE", "/api/tenants"), ("GET", "/api/tenants/a/reload"),
        ("POST", "/api/tenants/a"), ("GET", "/api/tenants/a/health/b"), ("POST", "/api/tenants/a/health"),
    ])
    func `knows no other paths and methods`(method: String, path: String) throws {
        let found = try response(method, path, authorization: nil)
        #expect(found?.status == .notFound && text(found) == #""Not Found""#)
    }

    @Test(arguments: [nil, "Bearer", "Bearer x", "bearer TOKEN", "Basic TOKEN", "TOKEN"])
    func `lets in nobody without an operator's token`(authorization: String?) throws {
        let given = authorization?.replacing("TOKEN", with: token("{}", secret: Self.secret))
        for (method, path) in [
            ("GET", "/api/tenants"), ("POST", "/api/tenants"), ("DELETE", "/api/tenants/a"),
            ("GET", "/api/tenants/realtime-dev/health"),
        ] {
            let found = try response(method, path, authorization: given)
            #expect(found?.status == .forbidden && found?.body.isEmpty == true, "\(method) \(path)")
        }
    }

    @Test func `tells health to everybody where there are no operators, and nothing else to anybody`() throws {
        let open = TenantsAPI(
            store, configured: own, operators: OperatorGate([], withdrawn: nil, clients: nil), stageDefaults)
        #expect(open.refusal(try request("HEAD", "/api/tenants/realtime-dev/health"), at: stageTime) == nil)
        let refused = open.refusal(try request("GET", "/api/tenants"), at: stageTime)
        #expect(refused?.status == .forbidden)
    }

    @Test(arguments: [
        ("*/*", true), ("application/json", true), ("text/html, application/*;q=0.1", true),
        ("application/vnd.api+json", true), ("APPLICATION/JSON ; charset=utf-8", true), ("", true),
        ("text/html", false), ("application/json;q=0", false), ("text/*, image/png", false),
    ])
    func `answers in JSON or not at all`(accept: String, isAnswered: Bool) throws {
        let found = try response("GET", "/api/tenants", accept: accept, authorization: nil)
        #expect(found?.status.rawValue == (isAnswered ? 403 : 406))
    }

    @Test func `tells health in the reference's words`() {
        var health = ProjectHealth(
            isDatabaseConnected: false, isReplicating: false, clients: 3, region: "us-east-1", node: "tidewire@h")
        #expect(!health.isHealthy)
        // A project without connected clients is not healthy while its database is unreachable.
        health.clients = 0
        #expect(!health.isHealthy)
        health.isDatabaseConnected = true
        #expect(!health.isHealthy)
        health = ProjectHealth(
            isDatabaseConnected: true, isReplicating: true, clients: 3, region: "us-east-1", node: "tidewire@h")
        #expect(health.response.status == .ok)
        #expect(
            text(health.response) == #"{"data":{"healthy":true,"db_connected":true,"replication_connected":true,"#
                + #""connected_cluster":3,"region":"us-east-1","node":"tidewire@h"}}"#)
    }
}

@Suite(.within(minutes: 10)) struct OperatorGateTests {
    private func admits(
        _ gate: OperatorGate, _ claims: String = #"{"exp":1900000000}"#, secret: String = "a",
        for concern: OperatorGate.Concern = .everything
    ) throws -> Bool {
        gate.admits(
            try request("GET", "/", ["authorization": "Bearer \(token(claims, secret: secret))"]), for: concern,
            at: stageTime)
    }

    @Test func `takes either secret, and no other`() throws {
        let gate = OperatorGate([Secret("a"), Secret("b")], withdrawn: nil, clients: nil)
        #expect(try admits(gate, secret: "a") && admits(gate, secret: "b"))
        #expect(try !admits(gate, secret: "c"))
        let closed = OperatorGate([], withdrawn: nil, clients: nil)
        #expect(try !admits(closed) && !admits(closed, for: .health) && !closed.hasOperators)
    }

    @Test func `looks at dates and at what was withdrawn`() throws {
        let gate = OperatorGate(
            [Secret("a")], withdrawn: Secret("x, \(token(#"{"n":1,"exp":1900000000}"#, secret: "a")) ,y"),
            clients: Secret("other"))
        #expect(try admits(gate, #"{"n":2,"exp":1800000001}"#))
        #expect(try !admits(gate, #"{"n":2,"exp":1800000000}"#))
        #expect(try !admits(gate, #"{"n":1,"exp":1900000000}"#))
    }

    @Test(arguments: [("anon", false), ("authenticated", false), ("service_role", true)])
    func `lets no client in where the secret is the clients' too, but tells it about health`(
        role: String, isOperator: Bool
    ) throws {
        let claims = #"{"role":"\#(role)","exp":1900000000}"#
        let shared = OperatorGate([Secret("a")], withdrawn: nil, clients: Secret("a"))
        #expect(try admits(shared, claims) == isOperator)
        #expect(try admits(shared, claims, for: .health))
        #expect(try admits(shared))
        #expect(try admits(OperatorGate([Secret("a")], withdrawn: nil, clients: Secret("b")), claims))
    }

    /// Checks that the hub refuses tokens with a long life. Whoever finds a token can use it until it expires.
    @Test func `takes no token that does not end, or not in a lifetime`() throws {
        let gate = OperatorGate([Secret("a")], withdrawn: nil, clients: nil)
        for end in [
            "", #""exp":1e300"#, #""exp":1800000000000"#, #""exp":null"#, #""exp":"never""#, #""exp":4000000000"#,
        ] {
            #expect(try !admits(gate, "{\(end)}"), "\(end)")
        }
        #expect(try admits(gate, #"{"exp":2200000000}"#))
        // The token of a metrics scraper may have no expiry.
        let metrics = OperatorGate([Secret("a")], within: nil, withdrawn: nil, clients: nil)
        #expect(try admits(metrics, "{}"))
    }

    @Test func `is made of the settings`() throws {
        let keys = try Configuration.load(
            overrides: [
                .flag(Setting(\.jwtSecret), "c"), .flag(Setting(\.operatorSecret), "a"),
                .flag(Setting(\.nextOperatorSecret), "b"),
                .flag(Setting(\.operatorBlocklist), token(#"{"exp":1900000000}"#, secret: "b")),
                .flag(Setting(\.metricsSecret), "m"),
                .flag(Setting(\.metricsBlocklist), token(#"{"exp":1900000000}"#, secret: "m")),
            ], surroundings: .only()
        ).tokenKeys(surroundings: .only())
        #expect(try admits(keys.operators, secret: "a") && !admits(keys.operators, secret: "b"))
        let metrics = try #require(keys.metricsGate)
        #expect(try admits(metrics, #"{"n":1}"#, secret: "m") && !admits(metrics, secret: "m"))
    }
}

@Suite(.within(minutes: 10)) struct ConfiguredProjectTests {
    @Test func `describes the project of the settings`() throws {
        let configuration = try Configuration.load(
            surroundings: .only([
                "API_JWT_SECRET": "s", "DB_HOST": "db", "DB_PASSWORD": "hunter2", "SELF_HOST_TENANT_NAME": "app",
                "TENANT_MAX_EVENTS_PER_SECOND": "9", "REGION": "eu-west-3",
            ]))
        let record = ProjectRecord(of: configuration, id: "id", at: stageTime)
        #expect(record.externalID == "app" && record.name == "app" && record.region == "eu-west-3")
        #expect(record.jwtSecret?.revealed == "s")
        #expect(record.database == configuration.databaseURL)
        #expect(record.limits(configuration.projectDefaults) == configuration.projectLimits)
        let told = record.told(ProjectSeal([1])).text
        #expect(!told.contains("hunter2"))
    }
}
