import Asking
import Diagnostics

/// Job for the catalog's thread.
enum CatalogJob: AskedJob {
    case resolve(ResolveJob)
    case refresh(RefreshJob)

    /// Request to resolve bindings.
    struct ResolveJob: Sendable {
        let requests: [BindingRequest]
        let reply: Reply<Resolution>
    }

    struct Resolution: Sendable {
        /// Outcomes in the order of the requests.
        let outcomes: [BindingOutcome]
        /// Version of the catalog snapshot by which the outcomes were decided.
        let version: UInt64
    }

    /// Request for a snapshot that is read after the request was made.
    struct RefreshJob: Sendable {
        /// Transaction whose effects the snapshot must include; nil if any newly read snapshot is sufficient.
        let xid: UInt32?
        /// Monotonic time in nanoseconds at which the request is given up.
        let deadline: UInt64
        let reply: Reply<CatalogSnapshot?>
    }

    static let room = InboxLoad(
        jobs: Limits.maximumWaitingRefreshes, parts: Limits.maximumWaitingBindings,
        bytes: Limits.maximumWaitingBindingBytes)

    /// Load that the inbox counts: one job for a refresh, one part for each request of a resolve job.
    var load: InboxLoad {
        switch self {
        case .refresh: InboxLoad(jobs: 1)
        case .resolve(let job):
            InboxLoad(parts: job.requests.count, bytes: job.requests.reduce(0) { $0 + $1.byteCount })
        }
    }

    func giveUp() {
        switch self {
        case .refresh(let job): job.reply.giveUp()
        case .resolve(let job): job.reply.giveUp()
        }
    }
}
