import TestSupport
import Testing
import WebSocket

private let usual: [(String, String)] = [
    ("Host", "localhost"), ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]

/// Returns the usual upgrade request with changed headers. An empty value removes a header.
private func upgrade(
    _ changes: [(String, String)] = [], line: String = "GET /socket/websocket HTTP/1.1"
) throws -> HTTPRequest {
    let kept = usual.filter { header in !changes.contains { $0.0 == header.0 } } + changes.filter { $0.1 != "" }
    return try request(line + "\r\n" + kept.map { "\($0.0): \($0.1)\r\n" }.joined() + "\r\n")
}

private func accepted(
    _ request: HTTPRequest, deflate: Bool = false
) throws -> (response: String, agreement: DeflateAgreement?) {
    let outcome = WebSocketHandshake.accept(request, offeringDeflate: deflate)
    guard case .accepted(let bytes, let agreement) = outcome else { throw Unexpected(outcome: "\(outcome)") }
    return (String(decoding: bytes, as: UTF8.self), agreement)
}

private func refused(_ request: HTTPRequest) throws -> HTTPRefusal {
    let outcome = WebSocketHandshake.accept(request, offeringDeflate: true)
    guard case .refused(let refusal) = outcome else { throw Unexpected(outcome: "\(outcome)") }
    return refusal
}

@Suite(.within(minutes: 5)) struct HandshakeTests {
    /// Checks the example of RFC 6455 §1.3.
    @Test func `answers the example of RFC 6455`() throws {
        let answer = try accepted(try upgrade())
        #expect(
            answer.response
                == "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
                + "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
        #expect(answer.agreement == nil)
    }

    @Test func `reads tokens in any case and among others`() throws {
        _ = try accepted(try upgrade([("Upgrade", "h2c, WebSocket"), ("Connection", "keep-alive, UPGRADE")]))
    }

    @Test func `echoes no sub-protocol`() throws {
        let answer = try accepted(try upgrade([("Sec-WebSocket-Protocol", "a, b")]))
        #expect(!answer.response.contains("protocol"))
    }

    @Test(arguments: [
        ("Upgrade", ""), ("Upgrade", "websockets"), ("Connection", ""), ("Connection", "keep-alive"),
        ("Sec-WebSocket-Key", ""), ("Sec-WebSocket-Key", "c2hvcnQ="), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ-="), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQxx"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25j?Q=="), ("Content-Length", "1"),
    ])
    func `refuses a handshake that is none`(header: (String, String)) throws {
        #expect(try refused(try upgrade([header])).status == .badRequest)
    }

    @Test func `refuses other methods and HTTP/1.0`() throws {
        #expect(try refused(try upgrade(line: "POST / HTTP/1.1")).status == .badRequest)
        #expect(try refused(try upgrade(line: "GET / HTTP/1.0")).status == .badRequest)
    }

    @Test(arguments: ["", "8", "12", "013", "13, 8"])
    func `says which version it speaks`(version: String) throws {
        let refusal = try refused(try upgrade([("Sec-WebSocket-Version", version)]))
        #expect(refusal.status == .upgradeRequired)
        #expect(refusal.headers == [HTTPHeader("sec-websocket-version", "13")])
    }

    struct Offer: Sendable {
        let offer: String
        /// Agreed compression window in bits; nil if the hub declines the offer.
        let windowBits: Int?
        var isAnswered = false

        init(_ offer: String, _ windowBits: Int?, isAnswered: Bool = false) {
            self.offer = offer
            self.windowBits = windowBits
            self.isAnswered = isAnswered
        }
    }

    @Test(arguments: [
        Offer("permessage-deflate", 15),
        Offer("permessage-deflate; client_max_window_bits", 15),
        Offer("Permessage-Deflate ;client_max_window_bits=10; server_no_context_takeover", 15),
        Offer("permessage-deflate; client_no_context_takeover; client_max_window_bits=\"8\"", 15),
        Offer("permessage-deflate; server_max_window_bits=10", 10, isAnswered: true),
        Offer("permessage-deflate; server_max_window_bits=15", 15, isAnswered: true),
        Offer("permessage-deflate; server_max_window_bits=8", 8, isAnswered: true),
        Offer("x-webkit-deflate-frame, permessage-deflate", 15),
        Offer("permessage-deflate; surprise, permessage-deflate; server_max_window_bits=9", 9, isAnswered: true),
        Offer("permessage-deflate; server_max_window_bits", nil),
        Offer("permessage-deflate; server_max_window_bits=7", nil),
        Offer("permessage-deflate; server_max_window_bits=16", nil),
        Offer("permessage-deflate; server_max_window_bits=010", nil),
        Offer("permessage-deflate; client_max_window_bits=", nil),
        Offer("permessage-deflate; client_max_window_bits=99", nil),
        Offer("permessage-deflate; server_no_context_takeover=1", nil),
        Offer("permessage-deflate; server_no_context_takeover; server_no_context_takeover", nil),
        Offer("permessage-deflate; surprise", nil),
        Offer("permessage-deflate;", nil),
        Offer("permessage-deflated", nil),
        Offer("deflate-frame", nil),
    ])
    func `agrees to what it can do and declines the rest`(offer: Offer) throws {
        let request = try upgrade([("Sec-WebSocket-Extensions", offer.offer)])
        let answer = try accepted(request, deflate: true)
        #expect(answer.agreement?.serverWindowBits == offer.windowBits)
        let taken = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
        let window = offer.isAnswered ? "; server_max_window_bits=\(offer.windowBits ?? 0)" : ""
        let header = offer.windowBits == nil ? nil : "sec-websocket-extensions: \(taken)\(window)\r\n"
        #expect(answer.response.contains("extensions") == (header != nil))
        if let header { #expect(answer.response.contains(header)) }
        #expect(try accepted(request).agreement == nil, "without compression of our own nothing is agreed")
    }

    @Test func `compresses for a small window only what fits it`() throws {
        let offer = ("Sec-WebSocket-Extensions", "permessage-deflate; server_max_window_bits=10")
        let agreement = try #require(try accepted(try upgrade([offer]), deflate: true).agreement)
        #expect(agreement.allows(messageBytes: 1024))
        #expect(!agreement.allows(messageBytes: 1025))
    }
}
