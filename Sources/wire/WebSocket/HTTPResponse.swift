import Bytes

/// Header field. In a parsed request the name is in lower case.
public struct HTTPHeader: Hashable, Sendable {
    public let name: String
    public let value: String

    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

/// Response to a request. It is complete before its first byte is sent.
public struct HTTPResponse: Sendable {
    public var status: HTTPStatus
    public var headers: [HTTPHeader]
    public var body: [UInt8]

    public init(_ status: HTTPStatus, headers: [HTTPHeader] = [], body: [UInt8] = []) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    public init(_ status: HTTPStatus, contentType: String, body: [UInt8]) {
        self.init(status, headers: [HTTPHeader("content-type", contentType)], body: body)
    }

    public static let jsonContentType = "application/json; charset=utf-8"

    public static func json(_ status: HTTPStatus, _ body: [UInt8]) -> HTTPResponse {
        HTTPResponse(status, contentType: jsonContentType, body: body)
    }

    /// Returns a response of the form `{"error":"…"}`. Clients expect a refusal in this form.
    public static func error(_ status: HTTPStatus, _ text: String) -> HTTPResponse {
        saying(#"{"error":"#, status, text)
    }

    /// Returns a response of the form `{"message":"…"}`. The reference server (Supabase Realtime) refuses in this form.
    public static func message(_ status: HTTPStatus, _ text: String) -> HTTPResponse {
        saying(#"{"message":"#, status, text)
    }

    private static func saying(_ start: StaticString, _ status: HTTPStatus, _ text: String) -> HTTPResponse {
        var body = ByteWriter()
        body.append(start)
        JSONText.appendString(text, to: &body)
        body.append("}")
        return json(status, body.copied())
    }

    /// Interim response to a client that waits for it before it sends a body (RFC 9110 §10.1.1).
    public static let `continue` = Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)

    /// Appends the bytes of the response.
    ///
    /// The response to a HEAD request states the length of the body but does not contain the body.
    public func append(to writer: inout ByteWriter, keepAlive: Bool, toHead: Bool = false) {
        appendHead(to: &writer)
        if !status.hasNoBody {
            writer.append("content-length: ")
            writer.append(decimal: UInt64(body.count))
            writer.append("\r\n")
        }
        if status != .switchingProtocols {
            writer.append(keepAlive ? "connection: keep-alive\r\n" : "connection: close\r\n")
        }
        writer.append("\r\n")
        if !toHead, !status.hasNoBody { writer.append(body) }
    }

    /// Appends the head of a response whose body follows in pieces and has no known length. Without `inChunks`, the end
    /// of the connection ends the response.
    public func appendStreamHead(to writer: inout ByteWriter, keepAlive: Bool, inChunks: Bool) {
        appendHead(to: &writer)
        if inChunks { writer.append("transfer-encoding: chunked\r\n") }
        writer.append(keepAlive && inChunks ? "connection: keep-alive\r\n\r\n" : "connection: close\r\n\r\n")
    }

    public func bytes(keepAlive: Bool, toHead: Bool = false) -> [UInt8] {
        var writer = ByteWriter(capacity: 256 + body.count)
        append(to: &writer, keepAlive: keepAlive, toHead: toHead)
        return writer.copied()
    }

    private func appendHead(to writer: inout ByteWriter) {
        writer.append("HTTP/1.1 ")
        writer.append(decimal: UInt64(status.rawValue))
        writer.append(" ")
        writer.append(status.phrase)
        writer.append("\r\n")
        for header in headers {
            Self.append(field: header.name, to: &writer)
            writer.append(": ")
            Self.append(field: header.value, to: &writer)
            writer.append("\r\n")
        }
    }

    /// Appends a header's text, with a blank in place of each control character. A line break in a value could start
    /// another header or response.
    private static func append(field text: String, to writer: inout ByteWriter) {
        for byte in text.utf8 { writer.append(HTTPSyntax.isValueCharacter(byte) ? byte : HTTPSyntax.space) }
    }
}

/// Refusal of a request: the response that the client gets before the hub ends the connection.
public struct HTTPRefusal: Error, Equatable, Sendable {
    public let status: HTTPStatus
    /// Text for the client: a fixed sentence without data of the request.
    public let text: String
    public let headers: [HTTPHeader]

    public init(_ status: HTTPStatus, _ text: String, headers: [HTTPHeader] = []) {
        self.status = status
        self.text = text
        self.headers = headers
    }

    public var response: HTTPResponse {
        var response = HTTPResponse.error(status, text)
        response.headers += headers
        return response
    }
}
