import TestSupport
import Testing

@testable import WebSocket

/// Tests of a request's destination by RFC 9112 §3.2 and RFC 3986 §3.2. The target's own host has precedence over the
/// Host header, and each has only one reading.
@Suite(.within(minutes: 5)) struct AuthorityTests {
    private static let limits = HTTPLimits(
        maximumHeadBytes: 1 << 16, maximumTargetBytes: 1 << 14, maximumHeaders: 100, maximumBodyBytes: 1 << 20)

    /// Returns the parsed request; nil if it is refused with 400.
    private func request(_ line: String, host: String?) throws -> HTTPRequest? {
        let head = Array("\(line)\r\n\(host.map { "Host: \($0)\r\n" } ?? "")\r\n".utf8)
        switch HTTPRequestParser.parse(head.span.bytes, scanned: 0, limits: Self.limits) {
        case .request(let request, _): return request
        case .refuse(let refusal):
            #expect(refusal.status == .badRequest)
            return nil
        case .needMore:
            Issue.record("a whole head")
            return nil
        }
    }

    private static let hosts: [(host: String, label: String?)] = [
        ("shop", "shop"), ("shop.hub.example", "shop"), ("SHOP.Hub.example:4000", "shop"), ("shop:4000", "shop"),
        ("shop:", "shop"), ("shop.", "shop"), ("shop.hub.example.:80", "shop"), ("s_1.hub", "s_1"), ("s-1.hub", "s-1"),
        ("xn--w-uga.hub", "xn--w-uga"), (".hub", nil), ("127.0.0.1", nil), ("127.0.0.1:4000", nil), ("127.1", nil),
        ("127.0.0.1.", nil), ("2130706433", nil), ("0x7f.1", nil), ("0x7f000001", nil), ("127.hub", "127"),
        ("[::1]", nil), ("[::1]:4000", nil), ("[2001:DB8::7]", nil), ("[::ffff:127.0.0.1]:80", nil), ("[v1.x]", nil),
        ("0x.hub", "0x"), ("a.0x", nil), ("a.1b", "a"),
    ]

    private static let noHosts = [
        ":80", "shop:http", "shop:4000:1", "shop:65536", "shop:-1", "[::1", "::1", "[]", "[::1]x", "[::1]:x", "[shop]",
        "sh[op", "sh]op", "[::1%25eth0]", "shop/", "user@shop", "sh op", "shop,other", "shop, other", "sh%6fp", "shöp",
        "shop?x", "shop\\", "shop\"", "<shop>",
    ]

    @Test func `reads a host in one way`() throws {
        for (host, label) in Self.hosts {
            let request = try #require(try request("GET / HTTP/1.1", host: host), "\(host)")
            #expect(request.host?.text == host && request.host?.label == label, "\(host)")
            #expect(request.header("host") == host)
        }
        for host in Self.noHosts { #expect(try request("GET / HTTP/1.1", host: host) == nil, "\(host)") }
    }

    /// Checks RFC 9112 §3.2.2: every server ignores the Host header of a request in absolute form.
    @Test func `a target in absolute form counts before the Host header`() throws {
        for scheme in ["http", "HTTPS"] {
            for (host, label) in Self.hosts {
                let line = "GET \(scheme)://\(host)/api/ping?a=b HTTP/1.1"
                let request = try #require(try request(line, host: "other.example:1"), "\(host)")
                #expect(request.host?.text == host && request.host?.label == label, "\(host)")
                #expect(request.header("host") == host && request.path == "/api/ping")
            }
        }
        // Both the target and the Host header must be valid, and a Host header is required.
        let line = "GET http://shop.example/ HTTP/1.1"
        for host in Self.noHosts { #expect(try request(line, host: host) == nil, "\(host)") }
        #expect(try request(line, host: nil) == nil)
        let noTargets = Self.noHosts.filter { !$0.contains(where: { " /?".contains($0) }) } + ["", "/"]
        for host in noTargets { #expect(try request("GET http://\(host)/ HTTP/1.1", host: "shop") == nil, "\(host)") }
    }

    @Test func `HTTP 1.0 may do without a host`() throws {
        #expect(try request("GET / HTTP/1.0", host: nil)?.host == nil)
        #expect(try request("GET http://shop.example/ HTTP/1.0", host: nil)?.host?.label == "shop")
        #expect(try request("GET / HTTP/1.0", host: "shop:4000")?.host?.label == "shop")
    }

    @Test func `two Host headers are refused`() throws {
        #expect(try request("GET / HTTP/1.1", host: "a\r\nHost: a") == nil)
        #expect(try request("GET http://a/ HTTP/1.1", host: "a\r\nhost: b") == nil)
    }
}
