import Bytes
import TestSupport
import Testing
import WebSocket

@testable import Gateway
@testable import Projects
@testable import Settings

@Suite(.within(minutes: 5)) struct OpenAPITests {
    private static func document() throws -> JSONObject {
        try #require(try JSONValue.parse(OpenAPI.document, maximumDepth: 32).object)
    }

    private static func schema(_ name: String) throws -> JSONObject {
        try #require(try document()["components"]?.object?["schemas"]?.object?[name]?.object?["properties"]?.object)
    }

    /// Returns every operation with its path, its method and its description.
    private static func operations() throws -> [(path: String, method: String, operation: JSONObject)] {
        let paths = try #require(try document()["paths"]?.object)
        return paths.members.flatMap { path, item in
            (item.object?.members ?? []).compactMap { name, value in
                guard name != "parameters", let operation = value.object else { return nil }
                return (path, name.uppercased(), operation)
            }
        }
    }

    private static func references(_ value: JSONValue) -> [String] {
        switch value {
        case .array(let elements): elements.flatMap(references)
        case .object(let object):
            object.members.flatMap { name, value in name == "$ref" ? [value.string ?? ""] : references(value) }
        default: []
        }
    }

    @Test func `is a document of this version`() throws {
        let document = try Self.document()
        #expect(document["openapi"]?.string == "3.0.3")
        #expect(document["info"]?.object?["version"]?.string == Product.version)
    }

    @Test func `refers to what is there`() throws {
        let document = JSONValue.object(try Self.document())
        let references = Set(Self.references(document))
        #expect(references.count > 10)
        for reference in references {
            let steps = reference.split(separator: "/").dropFirst().map(String.init)
            #expect(steps.reduce(document as JSONValue?) { $0?.object?[$1] } != nil, "\(reference)")
        }
    }

    @Test func `names every operation once and says what comes of it`() throws {
        let operations = try Self.operations()
        let names = operations.compactMap { $0.operation["operationId"]?.string }
        #expect(names.count == operations.count && Set(names).count == names.count)
        for (path, method, operation) in operations {
            #expect(operation["responses"]?.object?.isEmpty == false, "\(method) \(path)")
        }
    }

    @Test func `says of tenants what the API knows, and all of it`() throws {
        let store = try ProjectStore(in: MemoryDirectory(), key: Secret("k"))
        let api = TenantsAPI(
            store, configured: nil, operators: OperatorGate([], withdrawn: nil, clients: nil), stageDefaults)
        let described = try Self.operations().filter { $0.path.hasPrefix("/api/tenants") }
        // Each command of the API is described with its role, and nothing else is.
        let served = OperatorCommand.all.flatMap { command in
            command.methods.map { method in
                let path = (["/api/tenants"] + command.path).joined(separator: "/")
                // A question's own role is the lowest of all, because options raise it.
                let role =
                    switch command.need {
                    case .role(let role): role
                    case .asked(let least, _): least
                    case .health: OperatorRole.viewer
                    }
                return "\(method) \(path) \(role)"
            }
        }
        let told = described.filter { $0.method != "HEAD" }.map { path, method, operation in
            "\(method) \(path) \(operation["x-tidewire-role"]?.string ?? "no role")"
        }
        #expect(Set(served).count == served.count && Set(told) == Set(served))
        for path in Set(described.map(\.path)) {
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
                let isKnown =
                    api.refusal(
                        try request(
                            method,
                            path.replacing("{id}", with: "a").replacing("{command}", with: "tail")
                                .replacing("{signal}", with: "mark")),
                        at: stageTime)?.status
                    != .notFound
                // Every resource that accepts GET also accepts HEAD.
                let wanted = described.contains {
                    $0.path == path && ($0.method == method || ($0.method == "GET" && method == "HEAD"))
                }
                #expect(isKnown == wanted, "\(method) \(path)")
            }
        }
    }

    @Test func `names every question to a log, and each of its options`() throws {
        let path = try #require(try Self.document()["paths"]?.object?["/api/tenants/{id}/log/{command}"]?.object)
        let names = path["parameters"]?.array?.compactMap { $0.object?["schema"]?.object?["enum"]?.array }.first
        #expect(Set(names?.compactMap(\.string) ?? []) == Set(LogQuestion.commands.keys))
        let options = path["get"]?.object?["parameters"]?.array?.compactMap { $0.object?["name"]?.string } ?? []
        let operands = LogQuestion.commands.values.flatMap(\.operands).map { $0.filter { !"…?".contains($0) } }
        #expect(Set(options) == Set(LogQuestion.options.keys).union(operands).union(["parts"]))
    }

    @Test func `describes the fields that are read and told`() throws {
        let described = Set(try Self.schema("TenantDescription").members.map(\.name))
        #expect(described == Set(ProjectField.all.map(\.name) + ["external_id", "extensions"]))
        let settings = try Self.schema("ExtensionDescription")["settings"]?.object?["properties"]?.object
        let known = ProjectField.requiredSettings + [.databaseURL] + ProjectField.optionalSettings
        #expect(Set(try #require(settings).members.map(\.name)) == Set(known.map(\.name)))
        let told = try #require(try recorded(tenantText()).told(ProjectSeal([1])).object)
        #expect(Set(try Self.schema("Tenant").members.map(\.name)) == Set(told.members.map(\.name)))
    }
}

@Suite(.within(minutes: 5)) struct HostileDescriptionTests {
    /// Checks that any body is accepted or refused, and that none ends the program.
    @Test(arguments: seeds(20))
    func `outlives any body`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let sound = body(tenantText("app", #","jwt_jwks":{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0"}]}"#))
        for _ in 0..<300 {
            var bytes = sound
            for _ in 0..<Int.random(in: 1...6, using: &random) {
                let index = Int.random(in: 0..<bytes.count, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: bytes[index] = UInt8.random(in: 0...255, using: &random)
                case 1: bytes.remove(at: index)
                default: bytes.insert(bytes[Int.random(in: 0..<bytes.count, using: &random)], at: index)
                }
            }
            guard let description = try? ProjectDescription.read(bytes, named: nil),
                let record = try? description.record(replacing: nil, stageDefaults, at: stageTime)
            else { continue }
            let seal = ProjectSeal([1])
            #expect(try ProjectRecord(stored: record.stored(seal), seal) == record)
            #expect(record.limits(stageDefaults).maximumPayloadBytes > 0)
        }
    }
}
