import Bytes
import TestSupport
import Testing
import WebSocket

/// Small limits, so that tests of the limits stay small.
let httpLimits = HTTPLimits(
    maximumHeadBytes: 1024, maximumTargetBytes: 256, maximumHeaders: 16, maximumBodyBytes: 4096)

func parse(_ head: String) -> HTTPRequestParser.Outcome { parse(Array(head.utf8)) }

func parse(_ head: [UInt8]) -> HTTPRequestParser.Outcome {
    HTTPRequestParser.parse(head.span.bytes, limits: httpLimits)
}

func request(_ head: String) throws -> HTTPRequest {
    let outcome = parse(head)
    guard case .request(let request, _) = outcome else { throw Unexpected(outcome: "\(outcome)") }
    return request
}

func refusal(_ head: String) throws -> HTTPRefusal { try refusal(Array(head.utf8)) }

func refusal(_ head: [UInt8]) throws -> HTTPRefusal {
    let outcome = parse(head)
    guard case .refuse(let refusal) = outcome else { throw Unexpected(outcome: "\(outcome)") }
    return refusal
}

struct Unexpected: Error { let outcome: String }

/// Parses the pieces as a connection does: it skips the part that it has already scanned.
func parse(inPieces pieces: [[UInt8]]) -> HTTPRequestParser.Outcome {
    var held: [UInt8] = []
    var outcome = HTTPRequestParser.Outcome.needMore(scanned: 0)
    for piece in pieces {
        guard case .needMore(let scanned) = outcome else { break }
        held += piece
        outcome = HTTPRequestParser.parse(held.span.bytes, scanned: scanned, limits: httpLimits)
    }
    return outcome
}

private let usual =
    "GET /socket/websocket?apikey=a.b-c_d&vsn=2.0.0&log_level= HTTP/1.1\r\nHost: localhost:4000\r\n"
    + "X-Client-Info:  swift \t\r\nAccept: a\r\nACCEPT: b\r\nCookie: a=1\r\ncookie: b=2\r\n\r\n"

@Suite(.within(minutes: 5)) struct RequestParserTests {
    @Test func `reads what a client asks for`() throws {
        let request = try request(usual)
        #expect(request.method == "GET")
        #expect(request.path == "/socket/websocket")
        #expect(request.pathSegments == ["socket", "websocket"])
        #expect(request.target == "/socket/websocket?apikey=a.b-c_d&vsn=2.0.0&log_level=")
        #expect(
            request.queryItems == [
                HTTPQueryItem("apikey", "a.b-c_d"), HTTPQueryItem("vsn", "2.0.0"), HTTPQueryItem("log_level", ""),
            ])
        #expect(request.host?.text == "localhost:4000")
        #expect(request.version == .http11)
        #expect(request.body == .none)
        #expect(request.keepAlive)
        #expect(request.header("x-client-info") == "swift")
        #expect(request.header("accept") == "a, b")
        #expect(request.header("cookie") == "a=1; b=2")
    }

    @Test func `says where the head ends and leaves what follows alone`() {
        let outcome = parse(usual + "\0anything")
        guard case .request(_, let headBytes) = outcome else { return #expect(Bool(false), "\(outcome)") }
        #expect(headBytes == usual.utf8.count)
    }

    @Test func `waits for the whole head, whatever is missing`() {
        let bytes = Array(usual.utf8)
        for length in 0..<bytes.count {
            #expect(parse(Array(bytes[..<length])) == .needMore(scanned: length))
        }
    }

    @Test(arguments: seeds(200))
    func `decides the same whatever pieces the bytes come in`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var bytes = Array((Smuggling.all.map(\.head) + [usual]).randomElement(using: &random)?.utf8 ?? usual.utf8)
        if Bool.random(using: &random) {
            bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
        }
        let whole = parse(bytes)
        let inPieces = parse(inPieces: pieces(of: bytes, using: &random))
        #expect(whole == inPieces)
    }

    @Test func `splits segments before it decodes them`() throws {
        let request = try request("POST /api/a%2Fb/c%20d/%2541/ HTTP/1.1\r\nHost: h\r\n\r\n")
        #expect(request.pathSegments == ["api", "a/b", "c d", "%41", ""])
        #expect(request.path == "/api/a/b/c d/%41/")
    }

    @Test func `decodes a query once, a plus as a blank`() throws {
        let request = try request("GET /?a+b=c%2Bd+e&&x&=y&a%20b=2&z=1=2&u=%C3%A9 HTTP/1.1\r\nHost: h\r\n\r\n")
        #expect(request.queryItems.map(\.name) == ["a b", "x", "", "a b", "z", "u"])
        #expect(request.queryItems.map(\.value) == ["c+d e", "", "y", "2", "1=2", "é"])
        #expect(request.query("a b") == "2")
        #expect(request.query("x") == "")
        #expect(request.query("nothing") == nil)
        #expect(request.path == "/")
        #expect(request.pathSegments.isEmpty)
    }

    @Test func `takes host and path from a target in absolute form`() throws {
        let full = try request("GET HTTP://other:81/a?b=c HTTP/1.1\r\nHost: h\r\n\r\n")
        #expect(full.host?.text == "other:81" && full.host?.label == "other")
        #expect(full.path == "/a")
        #expect(full.query("b") == "c")
        let bare = try request("GET https://other?b=c HTTP/1.1\r\nHost: h\r\n\r\n")
        #expect(bare.path == "/")
        #expect(bare.query("b") == "c")
    }

    @Test func `takes an asterisk from OPTIONS only`() throws {
        #expect(try request("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").path == "*")
        #expect(try refusal("GET * HTTP/1.1\r\nHost: h\r\n\r\n").status == .badRequest)
    }

    @Test func `ends the connection when the client wants it or cannot do better`() throws {
        #expect(try request("GET / HTTP/1.0\r\n\r\n").keepAlive == false)
        #expect(try request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keepAlive == false)
        #expect(try request("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n").keepAlive == false)
        #expect(try request("GET / HTTP/1.1\r\nHost: h\r\nConnection: closed\r\n\r\n").keepAlive)
    }

    @Test func `knows how the body is delimited`() throws {
        #expect(try request("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 007\r\n\r\n").body == .bytes(7))
        #expect(try request("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n").body == .chunked)
        let waiting = try request("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n")
        #expect(waiting.expectsContinue)
    }

    @Test func `keeps every other byte of a header's value`() throws {
        let head = Array("GET / HTTP/1.1\r\nHost: h\r\nX: a\tb\"".utf8) + [0xC3, 0xA9] + Array("\r\n\r\n".utf8)
        let outcome = parse(head)
        guard case .request(let request, _) = outcome else { return #expect(Bool(false), "\(outcome)") }
        #expect(request.header("x") == "a\tb\"é")
    }

    @Test func `refuses a target that is too long before its end has come`() throws {
        let long = "GET /" + String(repeating: "a", count: 400)
        #expect(try refusal(long).status == .uriTooLong)
        let justTooLong = "GET /" + String(repeating: "a", count: 256) + " HTTP/1.1\r\nHost: h\r\n\r\n"
        #expect(try refusal(justTooLong).status == .uriTooLong)
        let longest = "GET /" + String(repeating: "a", count: 255) + " HTTP/1.1\r\nHost: h\r\n\r\n"
        #expect(try request(longest).path.utf8.count == 256)
    }

    @Test func `refuses headers that are too large or too many`() throws {
        let large = "GET / HTTP/1.1\r\nHost: h\r\nX: " + String(repeating: "a", count: 1100)
        #expect(try refusal(large).status == .headersTooLarge)
        let many = (0..<16).map { "X\($0): a\r\n" }.joined()
        #expect(try refusal("GET / HTTP/1.1\r\nHost: h\r\n" + many + "\r\n").status == .headersTooLarge)
    }

    @Test func `answers other protocols at once`() throws {
        #expect(try refusal([22, 3, 1, 2, 0, 1, 0]).text.contains("TLS"))
        #expect(try refusal([22]).status == .badRequest)
        #expect(try refusal("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status == .versionNotSupported)
        #expect(try refusal([0, 0, 0, 8, 4, 210, 22, 47]).status == .badRequest)
        #expect(try refusal("SSH-2.0-OpenSSH_9.2\r\n").status == .badRequest)
        #expect(try refusal(String(repeating: "A", count: 25)).status == .badRequest)
    }
}
