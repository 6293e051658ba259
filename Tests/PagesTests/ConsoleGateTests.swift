import Bytes
import Crypto
import System
import TestSupport
import Testing

@testable import Pages
@testable import Settings
@testable import WebSocket

@Suite(.within(minutes: 5)) struct ConsoleGateTests {
    private static let now: Int64 = 1_800_000_000
    private static let secret = "a secret of operators that is long enough"
    private static let local = SocketAddress.loopback(port: 50_000)
    private static let page = ["host": "hub.example.com", "sec-fetch-site": "same-origin"]
    private static let write = ["origin": "https://hub.example.com"]

    private static func gate(
        _ access: ConsoleAccess = .on, withdrawn: String? = nil, in directory: MemoryDirectory? = nil
    ) throws -> ConsoleGate {
        try #require(
            ConsoleGate(
                access, operators: OperatorGate([Secret(secret)], withdrawn: withdrawn.map(Secret.init), clients: nil),
                key: Array(repeating: 7, count: 32), version: "1", in: directory, at: now))
    }

    private static func token(
        _ claims: String = #"{"sub":"ana","tidewire_role":"analyst","exp":1800090000}"#, secret: String = secret
    ) -> String {
        JWT.sign(claims: Array(claims.utf8).span, secret: Array(secret.utf8).span)
    }

    private static func request(_ method: String, _ path: String, _ headers: [String: String]) throws -> HTTPRequest {
        let lines = headers.map { "\($0.key): \($0.value)\r\n" }.sorted().joined()
        let bytes = Array("\(method) \(path) HTTP/1.1\r\n\(lines)\r\n".utf8)
        let limits = HTTPLimits(
            maximumHeadBytes: 32_768, maximumTargetBytes: 8192, maximumHeaders: 50, maximumBodyBytes: 1 << 20)
        guard case .request(let request, _) = HTTPRequestParser.parse(bytes.rawBytes, scanned: 0, limits: limits) else {
            throw NotARequest()
        }
        return request
    }

    private struct NotARequest: Error {}

    private static func response(
        _ gate: ConsoleGate, _ method: String, _ path: String, _ headers: [String: String],
        from peer: SocketAddress = local, at now: Int64 = now
    ) throws -> HTTPResponse? {
        guard case .response(let response) = gate.outcome(try request(method, path, headers), from: peer, at: now)
        else { return nil }
        return response
    }

    private static func signIn(
        _ gate: ConsoleGate, token: String = token(), at now: Int64 = now
    ) throws -> HTTPResponse? {
        let headers = page.merging(write) { $1 }.merging(["authorization": "Bearer \(token)"]) { $1 }
        return try response(gate, "POST", "/console/session", headers, at: now)
    }

    private static func cookie(_ response: HTTPResponse?) throws -> String {
        let header = try #require(response?.headers.first { $0.name == "set-cookie" })
        return String(header.value.prefix { $0 != ";" })
    }

    /// Operator of a request to the API; nil if the gate refuses it.
    private static func admitted(
        _ gate: ConsoleGate, _ headers: [String: String], from peer: SocketAddress = local, at now: Int64 = now,
        method: String = "GET"
    ) throws -> Operator? {
        let request = try request(method, "/console/api/tenants", headers)
        guard case .operation(let given, _, _) = gate.outcome(request, from: peer, at: now) else { return nil }
        return given
    }

    // MARK: Sessions

    @Test func `a token is posted once, and its cookie then stands for the operator`() throws {
        let gate = try Self.gate()
        let answer = try Self.signIn(gate)
        #expect(answer?.status == .ok)
        let set = try #require(answer?.headers.first { $0.name == "set-cookie" }?.value)
        for attribute in [
            "__Host-tidewire=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Max-Age=28800",
        ] {
            #expect(set.contains(attribute), "\(attribute)")
        }
        let cookie = try Self.cookie(answer)
        let given = try #require(try Self.admitted(gate, Self.page.merging(["cookie": cookie]) { $1 }))
        #expect(given == Operator(subject: "ana", role: .analyst, expiry: Self.now + 28_800))
        #expect(try Self.admitted(gate, Self.page) == nil, "without the cookie")
    }

    @Test func `a cookie is refused when a byte of it is another`() throws {
        let gate = try Self.gate()
        let cookie = try Self.cookie(try Self.signIn(gate))
        for index in cookie.indices where index >= cookie.index(cookie.startIndex, offsetBy: 16) {
            var forged = cookie
            forged.replaceSubrange(index...index, with: cookie[index] == "A" ? "B" : "A")
            // The last character of base64 may have bits that stand for nothing.
            guard index < cookie.index(before: cookie.endIndex) else { continue }
            #expect(try Self.admitted(gate, Self.page.merging(["cookie": forged]) { $1 }) == nil)
        }
        let twice = cookie + "; " + cookie
        #expect(try Self.admitted(gate, Self.page.merging(["cookie": twice]) { $1 }) == nil)
    }

    @Test func `a session ends after half an hour without requests, and after eight hours`() throws {
        let gate = try Self.gate()
        var cookie = try Self.cookie(try Self.signIn(gate))
        func headers() -> [String: String] { Self.page.merging(["cookie": cookie]) { $1 } }
        #expect(try Self.admitted(gate, headers(), at: Self.now + 1799) != nil)
        #expect(try Self.admitted(gate, headers(), at: Self.now + 1800) == nil)
        var time = Self.now
        while time < Self.now + 28_000 {
            time += 1000
            let request = try Self.request("GET", "/console/api/tenants", headers())
            guard case .operation(_, let renewed, _) = gate.outcome(request, from: Self.local, at: time) else {
                Issue.record("refused at \(time - Self.now)")
                return
            }
            cookie = String(try #require(renewed.first).value.prefix { $0 != ";" })
        }
        #expect(try Self.admitted(gate, headers(), at: Self.now + 28_799) != nil)
        #expect(try Self.admitted(gate, headers(), at: Self.now + 28_800) == nil)
    }

    @Test func `a session ends with its token`() throws {
        let gate = try Self.gate()
        let short = Self.token(#"{"exp":\#(Self.now + 100)}"#)
        let cookie = try Self.cookie(try Self.signIn(gate, token: short))
        let headers = Self.page.merging(["cookie": cookie]) { $1 }
        #expect(try Self.admitted(gate, headers, at: Self.now + 99) != nil)
        #expect(try Self.admitted(gate, headers, at: Self.now + 100) == nil)
    }

    @Test func `a stolen cookie is worth nothing after the sign-out, also after a restart`() throws {
        let directory = MemoryDirectory()
        let gate = try Self.gate(in: directory)
        let cookie = try Self.cookie(try Self.signIn(gate))
        let other = try Self.cookie(try Self.signIn(gate))
        let headers = Self.page.merging(["cookie": cookie]) { $1 }
        let request = try Self.request("GET", "/console/api/tenants", headers)
        guard case .operation(_, _, let isOver) = gate.outcome(request, from: Self.local, at: Self.now) else {
            Issue.record("the session was not admitted")
            return
        }
        let out = try Self.response(gate, "DELETE", "/console/session", headers.merging(Self.write) { $1 })
        #expect(out?.status == .noContent)
        #expect(out?.headers.contains { $0.name == "set-cookie" && $0.value.contains("Max-Age=0") } == true)
        #expect(isOver(), "streams of the session end too")
        #expect(gate.keepSignedOut())
        for gate in [gate, try Self.gate(in: directory)] {
            #expect(try Self.admitted(gate, headers) == nil)
            #expect(try Self.admitted(gate, Self.page.merging(["cookie": other]) { $1 }) != nil)
        }
    }

    @Test func `a full list of ended sessions ends all of them`() throws {
        let gate = try Self.gate()
        let kept = try Self.cookie(try Self.signIn(gate))
        for _ in 0...SignedOut.most {
            let cookie = try Self.cookie(try Self.signIn(gate))
            let headers = Self.page.merging(["cookie": cookie]) { $1 }.merging(Self.write) { $1 }
            _ = try Self.response(gate, "DELETE", "/console/session", headers)
        }
        #expect(try Self.admitted(gate, Self.page.merging(["cookie": kept]) { $1 }) == nil)
        let later = try Self.cookie(try Self.signIn(gate, at: Self.now + 1))
        #expect(try Self.admitted(gate, Self.page.merging(["cookie": later]) { $1 }, at: Self.now + 1) != nil)
    }

    @Test func `a list of ended sessions that cannot be read ends all of them`() throws {
        let directory = MemoryDirectory()
        let cookie = try Self.cookie(try Self.signIn(try Self.gate()))
        try directory.replace(SignedOut.fileName, with: Array("what is this".utf8).rawBytes)
        let gate = try Self.gate(in: directory)
        #expect(try Self.admitted(gate, Self.page.merging(["cookie": cookie]) { $1 }) == nil)
    }

    @Test func `a withdrawn token ends its sessions`() throws {
        let cookie = try Self.cookie(try Self.signIn(try Self.gate()))
        let gate = try Self.gate(withdrawn: "x, " + Self.token())
        #expect(try Self.admitted(gate, Self.page.merging(["cookie": cookie]) { $1 }) == nil)
        #expect(try Self.signIn(gate)?.status == .forbidden)
    }

    @Test func `only so many sign-ins may fail`() throws {
        let gate = try Self.gate()
        let wrong = Self.token(secret: "another secret")
        for _ in 0..<SignInLimit.mostOfOne { #expect(try Self.signIn(gate, token: wrong)?.status == .forbidden) }
        let refused = try Self.signIn(gate)
        #expect(refused?.status == .tooManyRequests)
        #expect(refused?.headers.contains(HTTPHeader("retry-after", "60")) == true)
        #expect(try Self.signIn(gate, at: Self.now + 60)?.status == .ok)
    }

    // MARK: Attacks

    /// A cookie of SameSite=Strict is sent by a page on another port of the same host.
    @Test(arguments: ["same-site", "cross-site", "none", ""])
    func `a request that no page of the console sent is refused`(site: String) throws {
        for access in [ConsoleAccess.on, .loopback] {
            let gate = try Self.gate(access)
            let cookie = try Self.cookie(try Self.signIn(gate))
            var headers = ["host": "127.0.0.1:4000", "cookie": cookie]
            if !site.isEmpty { headers["sec-fetch-site"] = site }
            #expect(try Self.admitted(gate, headers) == nil)
            for method in ["GET", "POST", "DELETE"] {
                let answer = try Self.response(gate, method, "/console/session", headers)
                #expect(answer?.status == .forbidden)
                #expect(answer?.headers.contains { $0.name == "set-cookie" } == false)
            }
        }
    }

    @Test(arguments: ["https://hub.example.com.evil", "https://evil", "http://hub.example.com:4001", "null", ""])
    func `a request that changes something needs an equal origin`(origin: String) throws {
        let gate = try Self.gate()
        let cookie = try Self.cookie(try Self.signIn(gate))
        var headers = Self.page.merging(["cookie": cookie]) { $1 }
        if !origin.isEmpty { headers["origin"] = origin }
        #expect(try Self.admitted(gate, headers, method: "POST") == nil)
        headers["origin"] = "https://hub.example.com"
        #expect(try Self.admitted(gate, headers, method: "POST") != nil)
    }

    @Test func `a body must be JSON, which a form cannot send`() throws {
        let gate = try Self.gate()
        let cookie = try Self.cookie(try Self.signIn(gate))
        let headers = Self.page.merging(Self.write) { $1 }.merging(["cookie": cookie, "content-length": "2"]) { $1 }
        for type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"] {
            let given = headers.merging(["content-type": type]) { $1 }
            #expect(try Self.admitted(gate, given, method: "POST") == nil)
        }
        let json = headers.merging(["content-type": "application/json; charset=utf-8"]) { $1 }
        #expect(try Self.admitted(gate, json, method: "POST") != nil)
    }

    // MARK: Without a token

    private static let here = ["host": "127.0.0.1:4000", "sec-fetch-site": "same-origin"]

    @Test func `this machine needs no token where the setting says so`() throws {
        #expect(try Self.admitted(try Self.gate(), Self.here) == nil)
        let gate = try Self.gate(.loopback)
        for host in ["127.0.0.1:4000", "localhost:4000", "LOCALHOST", "[::1]:4000"] {
            #expect(try Self.admitted(gate, Self.here.merging(["host": host]) { $1 })?.role == .admin, "\(host)")
        }
    }

    @Test(arguments: ["rebound.example.com:4000", "127.0.0.1.example.com", "localhost.example.com", "10.0.0.1"])
    func `a name of somebody else for this machine admits nobody`(host: String) throws {
        #expect(try Self.admitted(try Self.gate(.loopback), Self.here.merging(["host": host]) { $1 }) == nil)
    }

    @Test(arguments: ["x-forwarded-for", "x-real-ip", "forwarded", "via", "x-forwarded-host"])
    func `nobody behind a proxy is taken for this machine`(header: String) throws {
        #expect(try Self.admitted(try Self.gate(.loopback), Self.here.merging([header: "127.0.0.1"]) { $1 }) == nil)
    }

    @Test func `no other machine is taken for this one`() throws {
        let peer = try #require(try SocketAddress.resolve("192.0.2.1", port: 50_000).first)
        #expect(try Self.admitted(try Self.gate(.loopback), Self.here, from: peer) == nil)
        for own in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            #expect(try #require(try SocketAddress.resolve(own, port: 1).first).isLoopback, "\(own)")
        }
        for other in ["128.0.0.1", "::2", "::ffff:10.0.0.1", "7f00::1", "::127.0.0.1"] {
            #expect(try #require(try SocketAddress.resolve(other, port: 1).first).isLoopback == false, "\(other)")
        }
    }

    @Test func `there is no console without operators, nor where it is off`() {
        for (access, secrets) in [(ConsoleAccess.off, [Secret(Self.secret)]), (.on, [])] {
            let gate = ConsoleGate(
                access, operators: OperatorGate(secrets, withdrawn: nil, clients: nil),
                key: Array(repeating: 7, count: 32), version: "1", in: nil, at: Self.now)
            #expect(gate == nil)
        }
    }

    // MARK: Files

    @Test func `every file is served at an address that names its content`() throws {
        let gate = try Self.gate()
        let first = try #require(try Self.response(gate, "GET", "/console/", ["host": "h"]))
        #expect(String(decoding: first.body, as: UTF8.self).contains("\(PageFiles.digest)/console.js"))
        #expect(first.headers.contains(HTTPHeader("cache-control", "no-cache")))
        for name in PageFiles.all.keys {
            let path = "/console/\(PageFiles.digest)/\(name)"
            let file = try #require(try Self.response(gate, "GET", path, ["host": "h", "accept-encoding": "gzip, br"]))
            #expect(file.status == .ok)
            #expect(file.headers.contains(HTTPHeader("content-encoding", "gzip")))
            #expect(file.headers.contains { $0.name == "cache-control" && $0.value.contains("immutable") })
            #expect(file.headers.contains { $0.name == "content-security-policy" && $0.value.contains("'none'") })
            #expect(file.headers.contains(HTTPHeader("x-content-type-options", "nosniff")))
        }
        for path in [
            "/console/console.js", "/console/x/console.js", "/console/\(PageFiles.digest)/index.html", "/console/a/b/c",
        ] {
            #expect(try Self.response(gate, "GET", path, ["host": "h"])?.status == .notFound, "\(path)")
        }
        #expect(try Self.response(gate, "POST", "/console/", ["host": "h"])?.status == .methodNotAllowed)
        #expect(try Self.response(gate, "GET", "/console", ["host": "h"])?.status == .found)
    }

    @Test func `modules are joined without their imports and comments`() {
        let module = """
            // @ts-check
            import { a } from './a.js'

            /** A function. */
            export function b() {
              // a remark
              return 'export // import'
            }
            /**
             * A type.
             */
            export const c = /** @type {number} */ (1)
            """
        #expect(PageFiles.joinable(module) == "function b() {\n\treturn 'export // import'\n}\nconst c = (1)\n")
    }

    /// Names at the top of a module must differ from those of all others, because the hub serves them as one.
    @Test func `no two modules use a name twice`() {
        let scripts = PageFiles.embedded.map(\.name).filter { $0.hasSuffix(".js") }
        #expect(scripts.last == "app.js")
        var seen: [Substring: String] = [:]
        for script in scripts {
            for line in PageFiles.joinable(PageFiles.text(script)).split(separator: "\n") {
                let words = line.split(whereSeparator: { !$0.isLetter && !$0.isNumber && $0 != "_" })
                    .drop { $0 == "async" }
                guard !line.hasPrefix("\t"), words.count > 1,
                    ["function", "const", "let", "class"].contains(words.first)
                else { continue }
                let name = words[words.startIndex + 1]
                #expect(seen[name] == nil, "\(name) is in \(seen[name] ?? "") and \(script)")
                seen[name] = script
            }
        }
    }

    /// The budget of the console: 150 KB of source, and 45 KB compressed.
    @Test func `the console is small`() {
        let files = [PageFiles.first] + PageFiles.all.values
        #expect(files.map(\.bytes.count).reduce(0, +) <= 150_000)
        #expect(files.map { ($0.compressed ?? $0.bytes).count }.reduce(0, +) <= 45_000)
    }
}
