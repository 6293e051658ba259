import Auth
import Bytes
import Protocol
import WebSocket

/// Reason why the hub refuses a request for changes.
enum FeedRefusal: Error, Equatable {
    case unknownParameter(String, nearest: String?)
    case parameter(String, String)
    case notAcceptable
    case token(TokenError)
    case noToken
    case unknownProject
    case suspended
    case privateOnly
    case tooMany(String)
    /// The hub cannot provide the table changes that the request asks for.
    case binding(ClientText)
    /// The hub cannot send the changes after the position. The client must fetch its data again, and continue from the
    /// given position.
    case mustFetchAgain(LogStanding.Refusal, from: String)
    /// The hub cannot answer the request at the moment.
    case unavailable(String)

    var status: HTTPStatus {
        switch self {
        case .unknownParameter, .parameter: .badRequest
        case .notAcceptable: .notAcceptable
        case .token(let error): HTTPStatus(rawValue: UInt16(clamping: error.upgradeStatus))
        case .noToken: .unauthorized
        case .unknownProject: .notFound
        case .suspended, .privateOnly: .forbidden
        case .tooMany: .tooManyRequests
        case .binding(let text):
            switch text.code {
            case .noSuchTable: .notFound
            case .unknownRole: .forbidden
            default: .badRequest
            }
        case .mustFetchAgain: .conflict
        case .unavailable: .serviceUnavailable
        }
    }

    var code: String {
        switch self {
        case .unknownParameter: "UnknownParameter"
        case .parameter: "InvalidParameter"
        case .notAcceptable: "NotAcceptable"
        case .token: "TokenRefused"
        case .noToken: "TokenMissing"
        case .unknownProject: "UnknownProject"
        case .suspended: "ProjectSuspended"
        case .privateOnly: "PrivateOnly"
        case .tooMany: "TooMany"
        case .binding(let text): text.code.rawValue
        case .mustFetchAgain: "MustFetchAgain"
        case .unavailable: "Unavailable"
        }
    }

    /// Description for the client. It contains nothing that a client sent, except parameter names.
    var text: String {
        switch self {
        case .unknownParameter(let name, let nearest):
            "There is no parameter \(name.prefix(64))" + (nearest.map { "; did you mean \($0)?" } ?? "")
        case .parameter(let name, let problem): "The parameter \(name) cannot be used: \(problem)"
        case .notAcceptable: "There are application/json, application/x-ndjson and text/event-stream"
        case .token(let error): error.upgradeText
        case .noToken: "A token is missing: Authorization: Bearer, or apikey as a header or a parameter"
        case .unknownProject: "Tenant not found"
        case .suspended: "Realtime was disabled for this tenant"
        case .privateOnly: "This project only allows private channels"
        case .tooMany(let text), .unavailable(let text): text
        case .binding(let text): text.text
        case .mustFetchAgain(let refusal, let position):
            "\(refusal.sentence): fetch again what is shown, then go on after \(position)"
        }
    }

    /// Text that the ledger records for a refusal: its code and description.
    var said: String { "\(code): \(text)" }

    var response: HTTPResponse {
        var body = ByteWriter(capacity: 256)
        body.append("{\"error\":")
        JSONText.appendString(text, to: &body)
        body.append(",\"code\":\"\(code)\"")
        switch self {
        case .mustFetchAgain(let refusal, let position):
            body.append(",\"reason\":\"\(refusal.rawValue)\",\"position\":\"\(position)\"")
        case .unknownParameter(let name, _), .parameter(let name, _):
            body.append(",\"parameter\":")
            JSONText.appendString(String(name.prefix(64)), to: &body)
        default: break
        }
        body.append("}")
        var response = HTTPResponse.json(status, body.copied())
        switch self {
        case .token, .noToken: response.headers.append(HTTPHeader("www-authenticate", "Bearer"))
        case .tooMany, .unavailable: response.headers.append(.retryAfter)
        default: break
        }
        return response
    }
}

extension LogStanding.Refusal {
    fileprivate var sentence: String {
        switch self {
        case .olderThanRetention: "The event log does not reach back to that position"
        case .otherEpoch: "History has a gap since that position, or is another database's"
        case .unknown: "The event log has not come to that position"
        case .unreadable: "What the event log has from that position on cannot be read"
        }
    }
}
