import Diagnostics
import EventLog
import History
import System
import TestSupport
import Testing
import WebSocket

@testable import Projects
@testable import Settings

@Suite(.within(minutes: 5)) struct OperatorRoleTests {
    private static let secret = "operators"

    private static func api(_ rule: OperatorRoleRule = OperatorRoleRule()) throws -> TenantsAPI {
        TenantsAPI(
            try ProjectStore(in: MemoryDirectory(), key: Secret("k")),
            configured: try recorded(tenantText("realtime-dev")),
            operators: OperatorGate([Secret(secret)], withdrawn: nil, clients: nil, rule: rule), stageDefaults)
    }

    private static func asked(_ method: String, _ path: String, claims: String) throws -> HTTPRequest {
        let token = token(#"{"exp":\#(stageTime + 3600)\#(claims)}"#, secret: secret)
        return try request(method, path, ["authorization": "Bearer \(token)"])
    }

    private static func role(_ name: String) -> String { #","tidewire_role":"\#(name)""# }

    /// Request of each command, with the lowest role that may send it.
    private static let requests: [(method: String, path: String, role: OperatorRole)] = [
        ("GET", "/api/tenants", .viewer), ("POST", "/api/tenants", .admin),
        ("GET", "/api/tenants/realtime-dev", .viewer), ("PUT", "/api/tenants/realtime-dev", .admin),
        ("PATCH", "/api/tenants/realtime-dev", .admin), ("DELETE", "/api/tenants/realtime-dev", .admin),
        ("POST", "/api/tenants/realtime-dev/reload", .admin), ("POST", "/api/tenants/realtime-dev/shutdown", .admin),
        ("GET", "/api/tenants/realtime-dev/health", .viewer), ("GET", "/api/tenants/realtime-dev/channels", .analyst),
        ("GET", "/api/tenants/realtime-dev/cluster", .viewer),
        ("POST", "/api/tenants/realtime-dev/cluster/handover", .admin),
        ("POST", "/api/tenants/realtime-dev/signal/mark", .admin),
        ("GET", "/api/tenants/realtime-dev/log/rows?table=a&key=1", .analyst),
        ("DELETE", "/api/tenants/realtime-dev/log/rows?table=a&key=1", .admin),
        ("GET", "/api/tenants/realtime-dev/log/part?name=question-1&from=0", .viewer),
        ("GET", "/api/tenants/realtime-dev/log/stats", .viewer), ("GET", "/api/tenants/realtime-dev/log/info", .viewer),
        ("HEAD", "/api/tenants/realtime-dev/log/verify", .viewer),
        ("GET", "/api/tenants/realtime-dev/log/stats?by=hour", .viewer),
        ("GET", "/api/tenants/realtime-dev/log/stats?by=actor", .analyst),
        ("GET", "/api/tenants/realtime-dev/log/stats?where=a=eq.1", .analyst),
        ("GET", "/api/tenants/realtime-dev/log/tail", .analyst),
        ("GET", "/api/tenants/realtime-dev/log/session", .analyst),
        ("GET", "/api/tenants/realtime-dev/log/bundle", .analyst),
        ("GET", "/api/tenants/realtime-dev/log/tail?unmask=email&because=ticket", .admin),
        ("GET", "/api/tenants/realtime-dev/log/stats?unmask=email&because=ticket", .admin),
        ("GET", "/api/tenants/realtime-dev/values", .viewer), ("GET", "/api/tenants/realtime-dev/config", .analyst),
        ("POST", "/api/tenants/realtime-dev/kick", .admin), ("GET", "/api/tenants/realtime-dev/blocks", .analyst),
        ("DELETE", "/api/tenants/realtime-dev/blocks?user=7", .admin),
        ("POST", "/api/tenants/realtime-dev/log", .viewer),
        ("GET", "/api/tenants/realtime-dev/log/follow", .analyst),
        ("GET", "/api/tenants/realtime-dev/log/follow?unmask=a&because=b", .admin),
    ]

    @Test(arguments: OperatorRole.allCases)
    func `a role may do what it is for, and is told what it lacks`(role: OperatorRole) throws {
        let api = try Self.api()
        for (method, path, needed) in Self.requests {
            let refused = api.refusal(try Self.asked(method, path, claims: Self.role(role.rawValue)), at: stageTime)
            #expect((refused == nil) == (role >= needed), "\(role) \(method) \(path)")
            guard let refused, path.contains("/health") == false else { continue }
            #expect(refused.status == .forbidden)
            #expect(String(decoding: refused.body, as: UTF8.self).contains("needs the role \(needed)"))
        }
    }

    /// The role of a request with several questions is that of the highest, which stands in its body.
    @Test func `questions in a body need the role of each of them`() throws {
        let api = try Self.api()
        let request = try Self.asked("POST", "/api/tenants/realtime-dev/log", claims: Self.role("viewer"))
        let body = Array(#"{"questions":[{"command":"stats"},{"command":"tail"}]}"#.utf8)
        guard case .response(let refused) = api.handle(request, body: body, at: stageTime) else { throw NoRequest() }
        #expect(refused.status == .forbidden)
        let counts = Array(#"{"questions":[{"command":"stats"},{"command":"info"}]}"#.utf8)
        guard case .question = api.handle(request, body: counts, at: stageTime) else { throw NoRequest() }
    }

    @Test func `every command has a request in this test`() throws {
        let commands = try Self.requests.compactMap {
            OperatorCommand.of(try request($0.method, $0.path))?.0
        }
        let tried = Set(commands.map { $0.path.joined(separator: "/") + $0.methods.joined() })
        #expect(tried == Set(OperatorCommand.all.map { $0.path.joined(separator: "/") + $0.methods.joined() }))
    }

    /// A role that nobody knows is no role, so that a later version's lower role does not become an admin here.
    @Test(arguments: [
        #","tidewire_role":"owner""#, #","tidewire_role":"Admin""#, #","tidewire_role":null"#,
        #","tidewire_role":["admin"]"#, #","tidewire_role":"""#, #","tidewire_role":"admin","tidewire_role":1"#,
    ])
    func `a role that is none is refused`(claims: String) throws {
        let refused = try Self.api().refusal(try Self.asked("GET", "/api/tenants", claims: claims), at: stageTime)
        #expect(refused?.status == .forbidden)
        let said = refused.map { String(decoding: $0.body, as: UTF8.self) } ?? ""
        #expect(said.contains("none of viewer, analyst, admin"))
    }

    @Test func `a token without the claim has the role of the settings`() throws {
        let post = try Self.asked("POST", "/api/tenants", claims: "")
        let list = try Self.asked("GET", "/api/tenants", claims: "")
        #expect(try Self.api().refusal(post, at: stageTime) == nil)
        let viewer = try Self.api(OperatorRoleRule(withoutClaim: .viewer))
        #expect(viewer.refusal(post, at: stageTime)?.status == .forbidden)
        #expect(viewer.refusal(list, at: stageTime) == nil)
        let none = try Self.api(OperatorRoleRule(withoutClaim: nil))
        #expect(none.refusal(list, at: stageTime)?.status == .forbidden)
        let other = try Self.api(OperatorRoleRule(claim: "job", withoutClaim: .viewer))
        let given = try Self.asked("POST", "/api/tenants", claims: #","job":"admin","tidewire_role":"viewer""#)
        #expect(other.refusal(given, at: stageTime) == nil)
    }

    @Test func `settings name the claim and the role of tokens without it`() throws {
        func gate(_ overrides: [SettingOverride]) throws -> OperatorGate {
            try Configuration.load(
                overrides: [.flag(Setting(\.operatorSecret), Self.secret)] + overrides, surroundings: .only()
            ).tokenKeys(surroundings: .only()).operators
        }
        let plain = try Self.asked("GET", "/api/tenants", claims: #","sub":"ana""#)
        #expect(
            try gate([]).admission(plain, at: stageTime)
                == .admitted(Operator(subject: "ana", role: .admin, expiry: stageTime + 3600)))
        #expect(
            try gate([.flag(Setting(\.operatorDefaultRole), "analyst")]).admission(plain, at: stageTime)
                == .admitted(Operator(subject: "ana", role: .analyst, expiry: stageTime + 3600)))
        guard case .noRole = try gate([.flag(Setting(\.operatorDefaultRole), "none")]).admission(plain, at: stageTime)
        else { throw NoRequest() }
    }
}

@Suite(.within(minutes: 5)) struct OperatorAuditTests {
    private let ana = Operator(subject: "ana@ops", role: .analyst)

    private func lines(_ log: String, _ name: String) throws -> [AuditNote] {
        try AuditTrail(in: try DiskDirectory(log), name: name).lines().compactMap {
            if case .note(let note) = $0 { note } else { nil }
        }
    }

    @Test func `an action has the operator's name and reason, before it happens`() throws {
        let log = TemporaryDirectory.make("log")
        let audit = OperatorAudit(fallback: log)
        try audit.note(.kick, "user 7", by: ana, because: "abuse", log: log)
        let note = try #require(try lines(log, AuditTrail.name).first)
        #expect(note.subject == "ana@ops" && note.reason == "abuse" && note.action == .kick && note.what == "user 7")
        #expect(throws: AuditFailure.self) {
            try OperatorAudit(fallback: "/nowhere").note(.signal, "mark", by: ana, log: "/nowhere/log")
        }
    }

    @Test func `reads are noted once a minute, and what was not noted is counted`() throws {
        let log = TemporaryDirectory.make("log")
        let audit = OperatorAudit(fallback: log)
        let second: UInt64 = 1_000_000_000
        for turn in 0..<5 { try audit.read("tail", by: ana, log: log, atMonotonic: second * UInt64(turn)) }
        try audit.read("tail", by: Operator(subject: "bo", role: .viewer), log: log, atMonotonic: second)
        try audit.read("tail", by: ana, log: log, atMonotonic: second * 61)
        let reads = try lines(log, AuditTrail.readsName)
        #expect(reads.map(\.subject) == ["ana@ops", "bo", "ana@ops"])
        #expect(reads.map(\.what) == ["tail", "tail", "tail (4 reads before this were not noted)"])
        #expect(try lines(log, AuditTrail.name).isEmpty)
        // Each key is another read, and yet an operator does not fill the disk.
        for key in 0..<1000 { try audit.read("row \(key)", by: ana, log: log, atMonotonic: second * 130) }
        #expect(try lines(log, AuditTrail.readsName).count == 3 + 60)
        #expect(
            try lines(log, AuditTrail.readsName).last?.what
                == "row 59 (the last line of this minute: further reads are only counted)")
        audit.end()
        audit.end()
        let last = try lines(log, AuditTrail.readsName).suffix(2)
        #expect(last.map(\.subject) == ["ana@ops", "ana@ops"])
        #expect(last.last?.what == "940 reads before this were not noted")
    }

    @Test func `what was not noted is also written for operators that are forgotten`() throws {
        let log = TemporaryDirectory.make("log")
        let audit = OperatorAudit(fallback: log)
        for _ in 0..<3 { try audit.read("tail", by: ana, log: log, atMonotonic: 1) }
        for number in 0..<Limits.maximumAuditedOperators {
            try audit.read("tail", by: Operator(subject: "\(number)", role: .viewer), log: log, atMonotonic: 2)
        }
        let owed = try lines(log, AuditTrail.readsName).filter { $0.what.contains("not noted") }
        #expect(owed.map(\.what) == ["2 reads before this were not noted"] && owed.map(\.subject) == ["ana@ops"])
    }

    @Test func `a question is written down without what it looks for`() throws {
        let question = try LogQuestion(
            "row",
            [
                HTTPQueryItem("table", "notes"), HTTPQueryItem("key", "me@x"), HTTPQueryItem("where", "a=eq.secret"),
                HTTPQueryItem("from", "-1h"),
            ])
        #expect(question.audited == "row table=notes key=… where=… from=-1h" && question.role == .analyst)
    }
}
