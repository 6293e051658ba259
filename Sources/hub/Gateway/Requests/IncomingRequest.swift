import Bytes
import Protocol
import Settings
import WebSocket

/// HTTP request that the hub serves, from its parsed head until its answer.
final class IncomingRequest {
    let request: HTTPRequest
    let route: Route
    var body: [UInt8] = []
    /// Headers that every answer to the request has.
    private(set) var headers: [HTTPHeader]

    init(_ request: HTTPRequest, echoes: Bool) {
        self.request = request
        route = Route(request, echoes: echoes)
        headers = [HTTPHeader("x-request-id", Self.id(request.header("x-request-id")))]
        if route.isForBrowsers, request.header("origin") != nil {
            headers.append(HTTPHeader("access-control-allow-origin", "*"))
        }
    }

    func add(_ headers: [HTTPHeader]) { self.headers += headers }

    /// Returns the client's request id if it can be logged, or a new one. Operators can then follow a request through a
    /// gateway.
    private static func id(_ given: String?) -> String {
        if let given, (8...128).contains(given.utf8.count), given.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) {
            return given
        }
        return UUIDText.random()
    }
}

extension HTTPRequest {
    /// Returns the headers that policies may read, as the text of a JSON object.
    func headersForPolicies(where isShown: (String) -> Bool) -> String {
        var writer = ByteWriter(capacity: 64)
        writer.append("{")
        var isFirst = true
        for header in headers where isShown(header.name) {
            if !isFirst { writer.append(",") }
            isFirst = false
            JSONText.appendString(header.name, to: &writer)
            writer.append(":")
            JSONText.appendString(header.value, to: &writer)
        }
        writer.append("}")
        return writer.bytes.text
    }
}

extension HTTPResponse {
    init(_ answer: BroadcastAnswer) {
        self = .json(HTTPStatus(rawValue: answer.status), Array("\(answer.body)".utf8))
    }

    /// Returns the answer to a browser's CORS preflight, which asks if pages of another host may send a request.
    static func preflight(_ route: Route) -> HTTPResponse {
        let (methods, more) = route == .changes ? ("GET, HEAD, OPTIONS", ", last-event-id") : ("POST, OPTIONS", "")
        return HTTPResponse(
            .noContent,
            headers: [
                HTTPHeader("access-control-allow-methods", methods),
                HTTPHeader(
                    "access-control-allow-headers",
                    "authorization, apikey, content-type, x-client-info, x-supabase-api-version" + more),
                HTTPHeader("access-control-max-age", "86400"),
            ])
    }
}
