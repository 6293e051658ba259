import Bytes
import FuzzSupport
import TestSupport
import WebSocket

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    writeSeeds(seeds.map { [7] + Array($0.utf8) })
    return 0
}

/// Fuzz target of the HTTP parser. Input: a byte that selects the cuts between pieces, then the bytes of a connection.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = input(start, count)
    guard let seed = bytes.first else { return 0 }
    let connection = Array(bytes.dropFirst())
    var random = SeededRandom(seed: UInt64(seed))
    let whole = serve([connection])
    let inPieces = serve(pieces(of: connection, using: &random))
    precondition(whole == inPieces, "the pieces made a difference: \(whole) and \(inPieces)")
    return 0
}

private let limits = HTTPLimits(
    maximumHeadBytes: 512, maximumTargetBytes: 128, maximumHeaders: 8, maximumBodyBytes: 256)

/// Result of parsing a connection's bytes.
private struct Served: Equatable {
    var head = HTTPRequestParser.Outcome.needMore(scanned: 0)
    var body: [UInt8] = []
    var bodyRefusal: HTTPRefusal?
    var isBodyComplete = false
}

private func serve(_ pieces: [[UInt8]]) -> Served {
    var served = Served()
    var held: [UInt8] = []
    var rest = pieces[...]
    while case .needMore(let scanned) = served.head, let piece = rest.popFirst() {
        held += piece
        served.head = HTTPRequestParser.parse(held.span.bytes, scanned: scanned, limits: limits)
    }
    switch served.head {
    // The scanned length depends on the cuts between pieces, unless no bytes arrived.
    case .needMore: served.head = .needMore(scanned: held.count)
    case .refuse(let refusal): check(refusal.response.bytes(keepAlive: false))
    case .request(let request, let headBytes):
        precondition(headBytes <= held.count && headBytes <= limits.maximumHeadBytes, "a head past its end")
        check(request)
        readBody(request, [Array(held.dropFirst(headBytes))] + rest, &served)
    }
    return served
}

private func check(_ request: HTTPRequest) {
    precondition(request.headers.count <= limits.maximumHeaders, "more headers than allowed")
    precondition(request.version == .http10 || request.host != nil, "a request without a host")
    switch WebSocketHandshake.accept(request, offeringDeflate: true) {
    case .accepted(let response, _): check(response)
    case .refused(let refusal): check(refusal.response.bytes(keepAlive: request.keepAlive))
    }
}

/// Checks that every line of a head ends in CR LF, and that the head contains no text of the client.
private func check(_ response: [UInt8]) {
    let text = String(decoding: response, as: UTF8.self)
    precondition(text.hasPrefix("HTTP/1.1 ") && text.contains("\r\n\r\n"), "not a response: \(text)")
}

private func readBody(_ request: HTTPRequest, _ pieces: [[UInt8]], _ served: inout Served) {
    do throws(HTTPRefusal) {
        var reader = try HTTPBodyReader(request.body, limits: limits)
        for piece in pieces {
            let taken = try reader.read(piece.span.bytes)
            precondition(taken == piece.count || reader.isComplete, "a body stopped in its midst")
        }
        served.body = reader.bytes.copied()
        served.isBodyComplete = reader.isComplete
        precondition(served.body.count <= limits.maximumBodyBytes, "a body past its maximum")
    } catch {
        served.bodyRefusal = error
    }
}

private let seeds = [
    "GET /socket/websocket?apikey=a&vsn=2.0.0 HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        + "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=10\r\n\r\n",
    "POST /api/a%2Fb?x=%41+b HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nWiki\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
    "GET http://h:80/a HTTP/1.1\r\nHost: h\r\nConnection: close\r\nCookie: a\r\nCookie: b\r\n\r\n",
    "OPTIONS * HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]
