import Bytes

/// Kind of body in `POST /api/broadcast/:topic/events/:event`.
public enum SingleBroadcast: Sendable, Hashable {
    /// A JSON object, which the hub passes on unchanged.
    case object
    /// Any other JSON value. The hub passes it on as `{"_json":…}`.
    case wrapped
    /// No body. It counts as an object without members.
    case empty
    /// Opaque bytes.
    case binary
    /// A body that is marked as JSON but is not JSON. The hub answers with status 400.
    case malformed
    /// A body of an unknown type. The hub answers with `BroadcastAnswer.unsupportedMediaType`.
    case unsupportedMediaType

    /// Determines the kind of a body. `contentType` is the value of the header `Content-Type`; nil if the request has
    /// none.
    public init(contentType: String?, body: RawSpan) {
        guard let contentType else {
            self = .empty
            return
        }
        switch MediaType.name(contentType) {
        case "application/octet-stream": self = .binary
        case "application/json": self = Self.json(body)
        default: self = .unsupportedMediaType
        }
    }

    /// Appends the payload that receivers get for the body.
    public func appendPayload(of body: RawSpan, to writer: inout ByteWriter) {
        switch self {
        case .object, .binary: writer.append(body)
        case .wrapped:
            writer.append("{\"_json\":")
            writer.append(body)
            writer.append("}")
        case .empty, .malformed, .unsupportedMediaType: writer.append("{}")
        }
    }

    private static func json(_ body: RawSpan) -> SingleBroadcast {
        guard !body.isEmpty else { return .empty }
        guard JSONScanner.isValue(body) else { return .malformed }
        var scanner = JSONScanner(body)
        return (try? scanner.next()) == .beginObject ? .object : .wrapped
    }
}

/// Parser of the header `Content-Type`.
public enum MediaType {
    /// True if the type is JSON. A missing or empty type counts as JSON.
    public static func isJSON(_ contentType: String?) -> Bool {
        guard let type = contentType.map(name), !type.isEmpty else { return true }
        return type == "application/json" || type.hasPrefix("application/") && type.hasSuffix("+json")
    }

    /// Returns the type without parameters, in lower case.
    static func name(_ contentType: String) -> String {
        let type = contentType.utf8.prefix { $0 != UInt8(ascii: ";") }
        return String(String(decoding: type, as: UTF8.self).lowercased().filter { $0 != " " && $0 != "\t" })
    }
}

/// Error answer to a broadcast that was sent by REST. The body is JSON.
public struct BroadcastAnswer: Sendable {
    public let status: UInt16
    public let body: StaticString

    private init(_ status: UInt16, _ body: StaticString) {
        self.status = status
        self.body = body
    }

    public static let unauthorized = BroadcastAnswer(401, #"{"message":"Unauthorized"}"#)
    public static let unknownTenant = BroadcastAnswer(401, #"{"message":"Tenant not found in database"}"#)
    public static let suspended = BroadcastAnswer(403, #"{"message":"Tenant is suspended"}"#)
    /// Answer for a sender without the right to send to the topic, for single broadcasts only. From a batch the hub
    /// leaves out such messages.
    public static let forbidden = BroadcastAnswer(403, #"{"message":"Unauthorized"}"#)
    public static let unsupportedMediaType = BroadcastAnswer(
        415, #"{"error":"Unsupported Media Type. Use application/json or application/octet-stream"}"#)

    public static let tooLarge = BroadcastAnswer(422, #"{"errors":{"payload":["Payload size exceeds tenant limit"]}}"#)
    public static let policyError = BroadcastAnswer(422, #"{"message":"RLS policy error"}"#)
    public static let queryCanceled = BroadcastAnswer(422, #"{"message":"Query canceled"}"#)
    public static let missingPartition = BroadcastAnswer(422, #"{"message":"Missing messages partition"}"#)
    public static let databaseUnavailable = BroadcastAnswer(422, #"{"message":"Tenant database unavailable"}"#)
    public static let databaseInitializing = BroadcastAnswer(422, #"{"message":"Tenant database initializing"}"#)
    public static let connectionInitializing = BroadcastAnswer(
        422, #"{"message":"Tenant database connection initializing"}"#)
    public static let tooManyConnections = BroadcastAnswer(
        422, #"{"message":"Tenant database has too many connections"}"#)
    public static let connectRateLimit = BroadcastAnswer(422, #"{"message":"Connect rate limit reached"}"#)

    /// Answer if the project has used up its allowed rate.
    public static let tooManyRequests = BroadcastAnswer(429, #"{"message":"Too many requests"}"#)
    public static let rateExceeded = BroadcastAnswer(429, #"{"message":"You have exceeded your rate limit"}"#)
    public static let batchTooLarge = BroadcastAnswer(
        429, #"{"message":"Too many messages to broadcast, please reduce the batch size"}"#)
    public static let poolExhausted = BroadcastAnswer(429, #"{"message":"Connection pool exhausted"}"#)

    public static let callFailed = BroadcastAnswer(500, #"{"message":"RPC error"}"#)
    public static let cannotAuthorize = BroadcastAnswer(500, #"{"message":"Unable to authorize broadcast"}"#)
}
