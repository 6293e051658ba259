import Bytes

/// Parser of the head of a connection's next request: HTTP/1.1 (RFC 9112). It is strict, because requests can be
/// smuggled where two servers read the same bytes differently.
///
/// The result is the same whether the bytes arrive together or in pieces.
public enum HTTPRequestParser {
    public enum Outcome: Equatable, Sendable {
        /// The head is incomplete. The caller passes `scanned` to the next call, so that the parser searches no byte
        /// twice.
        case needMore(scanned: Int)
        /// A complete head. The body, or the next request, begins at `headBytes`.
        case request(HTTPRequest, headBytes: Int)
        /// The request is refused. The caller sends the refusal and ends the connection, because the start of a next
        /// request is unknown.
        case refuse(HTTPRefusal)
    }

    public static func parse(_ bytes: RawSpan, scanned: Int = 0, limits: HTTPLimits) -> Outcome {
        do throws(HTTPRefusal) {
            try checkBeginning(bytes)
            try checkRequestLine(bytes, scanned: scanned, limits)
            guard let end = try endOfHead(bytes, scanned: scanned, limits) else {
                return .needMore(scanned: bytes.byteCount)
            }
            return .request(try request(bytes.extracting(0..<end), limits), headBytes: end)
        } catch {
            return .refuse(error)
        }
    }

    // MARK: Finding the head

    /// Length of the longest accepted method. The longest registered method has 17 characters.
    private static let longestMethod = 24

    /// Length of the request line apart from the target: method, two blanks, version and line break.
    private static let requestLineBesideTarget = longestMethod + 1 + 1 + 8 + 2

    /// Refuses a peer that uses another protocol immediately, so that the peer need not wait for a timeout.
    private static func checkBeginning(_ bytes: RawSpan) throws(HTTPRefusal) {
        // A TLS record of a handshake (RFC 8446 §5.1).
        if bytes.byteCount > 0, bytes.byte(0) == 22 {
            throw HTTPRefusal(.badRequest, "this port speaks plain HTTP, not TLS")
        }
        for offset in 0..<min(bytes.byteCount, longestMethod + 1) {
            let byte = bytes.byte(offset)
            if byte == HTTPSyntax.space, offset > 0 { return }
            guard HTTPSyntax.isTokenCharacter(byte), offset < longestMethod else {
                throw HTTPRefusal(.badRequest, "this is not an HTTP request")
            }
        }
    }

    private static func checkRequestLine(_ bytes: RawSpan, scanned: Int, _ limits: HTTPLimits) throws(HTTPRefusal) {
        let limit = min(limits.maximumTargetBytes + requestLineBesideTarget, limits.maximumHeadBytes)
        guard scanned < limit, bytes.byteCount >= limit else { return }
        guard HTTPSyntax.firstIndex(of: HTTPSyntax.lineFeed, in: bytes.extracting(0..<limit)) == nil else { return }
        throw HTTPRefusal(.uriTooLong, "the request's target is too long")
    }

    /// Returns the offset after the empty line that ends the head; nil if it has not arrived. Refuses a line without a
    /// carriage return, because other servers might end the head there (RFC 9112 §2.2).
    private static func endOfHead(
        _ bytes: RawSpan, scanned: Int, _ limits: HTTPLimits
    ) throws(HTTPRefusal) -> Int? {
        let limit = min(bytes.byteCount, limits.maximumHeadBytes)
        var start = scanned
        while let feed = HTTPSyntax.firstIndex(of: HTTPSyntax.lineFeed, in: bytes.extracting(0..<limit), from: start) {
            guard feed > 0, bytes.byte(feed - 1) == HTTPSyntax.carriageReturn else {
                throw HTTPRefusal(.badRequest, "a line ends without a carriage return")
            }
            if feed > 1, bytes.byte(feed - 2) == HTTPSyntax.lineFeed { return feed + 1 }
            start = feed + 1
        }
        guard limit < limits.maximumHeadBytes else {
            throw HTTPRefusal(.headersTooLarge, "the request's headers are too large")
        }
        return nil
    }

    // MARK: Reading the head

    private static func request(_ head: RawSpan, _ limits: HTTPLimits) throws(HTTPRefusal) -> HTTPRequest {
        var lines = HeadLines(head)
        let first = lines.next()
        let (method, targetRange, version) = try requestLine(first)
        let targetBytes = first.extracting(targetRange)
        guard targetBytes.byteCount <= limits.maximumTargetBytes else {
            throw HTTPRefusal(.uriTooLong, "the request's target is too long")
        }
        let target = try HTTPTarget(targetBytes, method: method)
        var fields = HTTPHeaderFields()
        while true {
            let line = lines.next()
            if line.byteCount == 0 { break }
            try fields.read(line, maximum: limits.maximumHeaders)
        }
        let host = try fields.host(version, authority: target.authority)
        let body = try fields.bodyLength(version)
        try fields.checkExpectation()
        return HTTPRequest(
            method: method, target: targetBytes.text, path: target.path, pathSegments: target.segments,
            queryItems: target.queryItems, version: version, headers: fields.fields, host: host, body: body)
    }

    /// Parses `method SP target SP version`. Requires exactly one blank between the parts, because servers read other
    /// blanks differently.
    private static func requestLine(_ line: RawSpan) throws(HTTPRefusal) -> (String, Range<Int>, HTTPVersion) {
        guard let first = HTTPSyntax.firstIndex(of: HTTPSyntax.space, in: line),
            let second = HTTPSyntax.firstIndex(of: HTTPSyntax.space, in: line, from: first + 1)
        else { throw HTTPRefusal(.badRequest, "the request's first line is not one of HTTP/1.1") }
        let version = try version(line.extracting(second + 1..<line.byteCount))
        return (line.extracting(0..<first).text, first + 1..<second, version)
    }

    private static func version(_ text: RawSpan) throws(HTTPRefusal) -> HTTPVersion {
        if text.equals("HTTP/1.1") { return .http11 }
        if text.equals("HTTP/1.0") { return .http10 }
        guard text.byteCount == 8, text.extracting(0..<5).equals("HTTP/"), HTTPSyntax.isDigit(text.byte(5)),
            text.byte(6) == UInt8(ascii: "."), HTTPSyntax.isDigit(text.byte(7))
        else { throw HTTPRefusal(.badRequest, "the request's first line is not one of HTTP/1.1") }
        // This covers the preface of HTTP/2, which looks like a request with its own version (RFC 9113 §3.4).
        throw HTTPRefusal(.versionNotSupported, "the versions of HTTP served are 1.1 and 1.0")
    }
}

/// Lines of a head, of which the last is empty. The search for the end of the head has checked that each ends in CR LF.
private struct HeadLines: ~Escapable {
    private let head: RawSpan
    private var start = 0

    @_lifetime(copy head)
    init(_ head: RawSpan) { self.head = head }

    @_lifetime(copy self)
    mutating func next() -> RawSpan {
        let feed = HTTPSyntax.firstIndex(of: HTTPSyntax.lineFeed, in: head, from: start) ?? head.byteCount
        let line = head.extracting(start..<max(start, feed - 1))
        start = min(feed + 1, head.byteCount)
        return line
    }
}
