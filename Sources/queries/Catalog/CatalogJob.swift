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
        /// Version of the snapshot for which the outcomes hold.
        let version: UInt64
    }

    /// Request for a snapshot that is read after the request.
    struct RefreshJob: Sendable {
        /// Transaction whose effects the snapshot must include; nil if any new snapshot will do.
        let xid: UInt32?
        let deadline: UInt64
        let reply: Reply<CatalogSnapshot?>
    }

    static let room = InboxLoad(
        jobs: Limits.maximumWaitingRefreshes, parts: Limits.maximumWaitingBindings,
        bytes: Limits.maximumWaitingBindingBytes)

    /// Refreshes count as jobs, and resolve jobs by the number of their requests.
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
