import Diagnostics
import Net
import Protocol
import WebSocket

/// Reason why no project serves a request.
enum NotServed: Error {
    /// The project does not run at the moment. The text gives the reason.
    case unavailable(String)
    /// The request is not for any known project.
    case unknown

    /// Response in the form of Supabase Realtime, for the paths that the hub has in common with it.
    var response: HTTPResponse {
        switch self {
        case .unavailable(let sentence): .message(.serviceUnavailable, sentence)
        case .unknown: HTTPResponse(.unknownTenant)
        }
    }

    var refusal: ProcessMetrics.Refusal {
        switch self {
        case .unavailable: .draining
        case .unknown: .notFound
        }
    }
}
