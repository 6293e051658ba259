import Asking
import Diagnostics

/// What the catalog's thread is asked.
enum CatalogJob: AskedJob {
    case resolve(ResolveJob)
    case refresh(RefreshJob)

    /// What bindings mean.
    struct ResolveJob: Sendable {
        let requests: [BindingRequest]
        let reply: Reply<Resolution>
    }

    struct Resolution: Sendable {
        /// In the order of the requests.
        let outcomes: [BindingOutcome]
        /// Of the snapshot that they hold for.
        let version: UInt64
    }

    /// A snapshot that was read after it was asked for.
    struct RefreshJob: Sendable {
        /// The snapshot must know what this transaction did.
        let xid: UInt32?
        let deadline: UInt64
        let reply: Reply<CatalogSnapshot?>
    }

    static let room = InboxLoad(
        jobs: Limits.maximumWaitingRefreshes, parts: Limits.maximumWaitingBindings,
        bytes: Limits.maximumWaitingBindingBytes)

    /// Refreshes are counted; what is to be resolved is counted by its requests.
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
