/// Status of a response, with its phrase (RFC 9110 §15).
public struct HTTPStatus: RawRepresentable, Hashable, Sendable {
    public let rawValue: UInt16

    public init(rawValue: UInt16) {
        precondition(rawValue >= 100 && rawValue <= 999, "a status has three digits")
        self.rawValue = rawValue
    }

    public static let `continue` = HTTPStatus(rawValue: 100)
    public static let switchingProtocols = HTTPStatus(rawValue: 101)
    public static let ok = HTTPStatus(rawValue: 200)
    public static let created = HTTPStatus(rawValue: 201)
    public static let accepted = HTTPStatus(rawValue: 202)
    public static let noContent = HTTPStatus(rawValue: 204)
    public static let found = HTTPStatus(rawValue: 302)
    public static let badRequest = HTTPStatus(rawValue: 400)
    public static let unauthorized = HTTPStatus(rawValue: 401)
    public static let forbidden = HTTPStatus(rawValue: 403)
    public static let notFound = HTTPStatus(rawValue: 404)
    public static let methodNotAllowed = HTTPStatus(rawValue: 405)
    public static let notAcceptable = HTTPStatus(rawValue: 406)
    public static let requestTimeout = HTTPStatus(rawValue: 408)
    public static let conflict = HTTPStatus(rawValue: 409)
    public static let contentTooLarge = HTTPStatus(rawValue: 413)
    public static let uriTooLong = HTTPStatus(rawValue: 414)
    public static let unsupportedMediaType = HTTPStatus(rawValue: 415)
    public static let expectationFailed = HTTPStatus(rawValue: 417)
    public static let unprocessableContent = HTTPStatus(rawValue: 422)
    public static let upgradeRequired = HTTPStatus(rawValue: 426)
    public static let tooManyRequests = HTTPStatus(rawValue: 429)
    public static let headersTooLarge = HTTPStatus(rawValue: 431)
    public static let internalServerError = HTTPStatus(rawValue: 500)
    public static let notImplemented = HTTPStatus(rawValue: 501)
    public static let serviceUnavailable = HTTPStatus(rawValue: 503)
    public static let versionNotSupported = HTTPStatus(rawValue: 505)

    private static let phrases: [UInt16: StaticString] = [
        100: "Continue", 101: "Switching Protocols", 200: "OK", 201: "Created", 202: "Accepted", 204: "No Content",
        302: "Found", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
        405: "Method Not Allowed", 406: "Not Acceptable", 408: "Request Timeout", 409: "Conflict",
        413: "Content Too Large", 414: "URI Too Long", 415: "Unsupported Media Type", 417: "Expectation Failed",
        422: "Unprocessable Content", 426: "Upgrade Required", 429: "Too Many Requests",
        431: "Request Header Fields Too Large", 500: "Internal Server Error", 501: "Not Implemented",
        503: "Service Unavailable", 505: "HTTP Version Not Supported",
    ]

    /// Phrase of the status; empty if the table has none. Clients ignore the phrase.
    var phrase: StaticString { Self.phrases[rawValue] ?? "" }

    /// True if a response with this status ends with its head and states no length (RFC 9112 §6.3).
    var hasNoBody: Bool { rawValue < 200 || rawValue == 204 || rawValue == 304 }
}
