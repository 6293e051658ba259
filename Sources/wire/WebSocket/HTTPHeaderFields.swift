import Bytes

/// Header fields of a request that is being read, with the rules for their characters and for repeated names.
struct HTTPHeaderFields {
    private(set) var fields: [HTTPHeader] = []

    /// Headers that may occur only once. If one occurred twice, two servers might understand the request differently.
    private static let single: Set<String> = [
        "authorization", "content-length", "content-type", "expect", "host", "origin", "sec-websocket-key",
        "sec-websocket-version", "transfer-encoding",
    ]

    func first(_ name: String) -> String? { fields.first { $0.name == name }?.value }

    /// Reads one header line, given without its line break, and adds its field.
    mutating func read(_ line: RawSpan, maximum: Int) throws(HTTPRefusal) {
        guard !HTTPSyntax.isBlank(line.byte(0)) else {
            // RFC 9112 §5.2: a header continued on the next line can hide a header from another server.
            throw HTTPRefusal(.badRequest, "a header must not begin with a blank")
        }
        guard let colon = HTTPSyntax.firstIndex(of: UInt8(ascii: ":"), in: line) else {
            throw HTTPRefusal(.badRequest, "a header has no colon")
        }
        let name = line.extracting(0..<colon)
        // RFC 9112 §5.1: no blank is allowed between name and colon. A blank is not a token character, so this check
        // refuses it.
        guard HTTPSyntax.isToken(name) else { throw HTTPRefusal(.badRequest, "a header's name is not a token") }
        let rest = line.extracting(colon + 1..<line.byteCount)
        let value = rest.extracting(HTTPSyntax.trimmed(rest))
        guard HTTPSyntax.all(of: value, are: HTTPSyntax.isValueCharacter) else {
            throw HTTPRefusal(.badRequest, "a header has a control character")
        }
        try add(HTTPSyntax.lowercased(name.text), value.text)
        guard fields.count <= maximum else { throw HTTPRefusal(.headersTooLarge, "the request has too many headers") }
    }

    /// Adds a field. Joins the values of a repeated name in their order, with commas (RFC 9110 §5.3), or with
    /// semicolons for cookies (RFC 6265 §5.4).
    private mutating func add(_ name: String, _ value: String) throws(HTTPRefusal) {
        guard let index = fields.firstIndex(where: { $0.name == name }) else {
            fields.append(HTTPHeader(name, value))
            return
        }
        guard !Self.single.contains(name) else {
            throw HTTPRefusal(.badRequest, "a header that may come once came twice")
        }
        fields[index] = HTTPHeader(name, fields[index].value + (name == "cookie" ? "; " : ", ") + value)
    }

    // MARK: The message that the head describes

    /// Returns the request's host. Requires exactly one Host header (RFC 9112 §3.2), so that a request has only one
    /// destination. A target in absolute form replaces that header (§3.2.2), so no later reader of the header sees
    /// another host.
    mutating func host(_ version: HTTPVersion, authority: HTTPAuthority?) throws(HTTPRefusal) -> HTTPAuthority? {
        guard let index = fields.firstIndex(where: { $0.name == "host" }) else {
            guard version == .http10 else { throw HTTPRefusal(.badRequest, "the request has no Host header") }
            return authority
        }
        guard let host = HTTPAuthority(fields[index].value) else {
            throw HTTPRefusal(.badRequest, "the Host header is not a host")
        }
        if let authority { fields[index] = HTTPHeader("host", authority.text) }
        return authority ?? host
    }

    /// Returns the length of the request's body by RFC 9112 §6.3. Refuses a body with two lengths, because it allows
    /// request smuggling.
    func bodyLength(_ version: HTTPVersion) throws(HTTPRefusal) -> HTTPBodyLength {
        guard let coding = first("transfer-encoding") else { return .bytes(try contentLength()) }
        guard first("content-length") == nil else {
            throw HTTPRefusal(.badRequest, "the request has both Content-Length and Transfer-Encoding")
        }
        guard version == .http11 else { throw HTTPRefusal(.badRequest, "HTTP/1.0 has no Transfer-Encoding") }
        guard HTTPSyntax.lowercased(coding) == "chunked" else {
            throw HTTPRefusal(.notImplemented, "the only transfer coding served is chunked")
        }
        return .chunked
    }

    private func contentLength() throws(HTTPRefusal) -> Int {
        guard let text = first("content-length") else { return 0 }
        // Only digits are allowed: no sign, and no list of equal numbers. Eighteen digits fit an Int.
        guard !text.isEmpty, text.utf8.allSatisfy(HTTPSyntax.isDigit) else {
            throw HTTPRefusal(.badRequest, "Content-Length is not a number")
        }
        guard text.utf8.count <= 18, let length = Int(text) else {
            throw HTTPRefusal(.contentTooLarge, "the request's body is too large")
        }
        return length
    }

    func checkExpectation() throws(HTTPRefusal) {
        guard let expected = first("expect"), HTTPSyntax.lowercased(expected) != "100-continue" else { return }
        throw HTTPRefusal(.expectationFailed, "the request expects something unknown")
    }
}
