import Bytes
import Crypto
import Testing
import WebSocket

@testable import Projects
@testable import Settings

/// Current time of these tests, in seconds since 1970.
let stageTime: Int64 = 1_800_000_000

let stageDefaults = ProjectDefaults(
    ProjectLimits(
        maximumConcurrentUsers: 10_000, maximumChannelsPerClient: 100, maximumJoinsPerSecond: 2500,
        maximumEventsPerSecond: 10_000, maximumPresenceEventsPerSecond: nil, clientPresenceEvents: 5,
        clientPresenceWindow: .seconds(30), maximumPayloadBytes: 3_000_500, isPrivateOnly: false,
        presenceEnabled: false, isSuspended: false))

let databaseSettings = #"""
    "region":"us-east-1","db_host":"db.example","db_port":"6543","db_name":"app","db_user":"hub","db_password":"hunter2"
    """#

func extensionText(_ settings: String = databaseSettings, type: String = "postgres_cdc_rls") -> String {
    #"{"type":"\#(type)","settings":{\#(settings)}}"#
}

let stageSecret = "s3cret-of-thirty-two-bytes-or-more"

/// Returns a `tenant` object that is enough to create a project.
func tenantText(_ name: String = "app", _ more: String = "") -> String {
    #"{"external_id":"\#(name)","jwt_secret":"\#(stageSecret)","extensions":[\#(extensionText())]\#(more)}"#
}

func body(_ tenant: String) -> [UInt8] { Array(#"{"tenant":\#(tenant)}"#.utf8) }

func described(_ tenant: String, named name: String? = nil) throws -> ProjectDescription {
    try ProjectDescription.read(body(tenant), named: name)
}

func recorded(
    _ tenant: String, replacing old: ProjectRecord? = nil, named name: String? = nil
) throws -> ProjectRecord {
    try described(tenant, named: name).record(replacing: old, stageDefaults, at: stageTime)
}

/// Returns the API's answer to a refused description; nil if the description is accepted.
func mistakes(_ tenant: String, replacing old: ProjectRecord? = nil) throws -> String? {
    do {
        _ = try recorded(tenant, replacing: old)
        return nil
    } catch let error as ProjectMistakes {
        return String(decoding: error.json, as: UTF8.self)
    }
}

func json(_ text: String) throws -> JSONValue { try JSONValue.parse(Array(text.utf8), maximumDepth: 32) }

func token(_ claims: String, secret: String) -> String {
    JWT.sign(claims: Array(claims.utf8).span, secret: Array(secret.utf8).span)
}

func request(_ method: String, _ path: String, _ headers: [String: String] = [:]) throws -> HTTPRequest {
    let lines = headers.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)\r\n" }.joined()
    let head = Array("\(method) \(path) HTTP/1.1\r\nHost: h\r\n\(lines)\r\n".utf8)
    let limits = HTTPLimits(
        maximumHeadBytes: 1 << 16, maximumTargetBytes: 1 << 14, maximumHeaders: 100, maximumBodyBytes: 1 << 20)
    guard case .request(let request, _) = HTTPRequestParser.parse(head.span.bytes, scanned: 0, limits: limits) else {
        throw NoRequest()
    }
    return request
}

struct NoRequest: Error {}
