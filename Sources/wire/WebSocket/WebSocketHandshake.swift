import Bytes
import Crypto

/// Opening handshake of RFC 6455 §4, for the server's side: checks a request and returns an upgrade or a refusal.
///
/// Other code decides which clients may connect, and to which path. The response never selects a sub-protocol, even if
/// the client offers some.
public enum WebSocketHandshake {
    public enum Outcome: Equatable, Sendable {
        /// Response to send before the first frame. If there is an agreement, both sides may compress messages.
        case accepted([UInt8], DeflateAgreement?)
        case refused(HTTPRefusal)
    }

    public static func accept(_ request: HTTPRequest, offeringDeflate: Bool) -> Outcome {
        do throws(HTTPRefusal) {
            let key = try key(of: request)
            let offers = offeringDeflate ? request.header("sec-websocket-extensions") : nil
            let agreement = offers.flatMap { DeflateOffer.agreement(with: $0) }
            return .accepted(response(key, agreement), agreement)
        } catch {
            return .refused(error)
        }
    }

    /// True if the request asks to upgrade to a WebSocket.
    public static func isRequested(by request: HTTPRequest) -> Bool {
        request.header("upgrade", hasToken: "websocket")
    }

    /// Returns the value with which a server answers a key (RFC 6455 §4.2.2). A client compares it with the server's
    /// answer.
    public static func answer(toKey key: String) -> String {
        let text = key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        return Base64.encode(SHA1.digest(of: Array(text.utf8).span).span)
    }

    /// Checks the request in the order of RFC 6455 §4.2.1 and returns its key.
    private static func key(of request: HTTPRequest) throws(HTTPRefusal) -> String {
        guard request.method == "GET", request.version == .http11, request.body == .none else {
            throw HTTPRefusal(.badRequest, "a WebSocket begins with GET of HTTP/1.1 without a body")
        }
        guard isRequested(by: request), request.header("connection", hasToken: "upgrade") else {
            throw HTTPRefusal(.badRequest, "the request does not ask for a WebSocket")
        }
        guard request.header("sec-websocket-version") == "13" else {
            throw HTTPRefusal(
                .upgradeRequired, "the WebSocket version served is 13",
                headers: [HTTPHeader("sec-websocket-version", "13")])
        }
        guard let key = request.header("sec-websocket-key"), isKey(key) else {
            throw HTTPRefusal(.badRequest, "Sec-WebSocket-Key is not 16 bytes in base64")
        }
        return key
    }

    /// True for 22 base64 digits and two of padding, which encode 16 bytes.
    private static func isKey(_ key: String) -> Bool {
        let utf8 = Array(key.utf8)
        return utf8.count == 24 && utf8[22...].elementsEqual("==".utf8) && utf8[..<22].allSatisfy(Base64.isDigit)
    }

    private static func response(_ key: String, _ agreement: DeflateAgreement?) -> [UInt8] {
        var response = HTTPResponse(
            .switchingProtocols,
            headers: [
                HTTPHeader("upgrade", "websocket"), HTTPHeader("connection", "Upgrade"),
                HTTPHeader("sec-websocket-accept", answer(toKey: key)),
            ])
        if let agreement { response.headers.append(HTTPHeader("sec-websocket-extensions", agreement.answer)) }
        return response.bytes(keepAlive: true)
    }
}
