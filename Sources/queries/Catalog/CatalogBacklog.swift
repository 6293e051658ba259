import Asking

/// Queue of jobs that the catalog's thread has taken but not answered. It is limited like the thread's inbox.
struct CatalogBacklog {
    private(set) var resolves: [CatalogJob.ResolveJob] = []
    private(set) var refreshes: [CatalogJob.RefreshJob] = []
    private var load = InboxLoad()
    private let room: InboxLoad

    init(holding room: InboxLoad = CatalogJob.room) { self.room = room }

    /// Adds jobs. Gives up a job that exceeds the limits; its caller asks again.
    mutating func take(_ jobs: [CatalogJob]) {
        for job in jobs {
            let more = load + job.load
            guard more.fits(room) else {
                job.giveUp()
                continue
            }
            load = more
            assert(load.fits(room), "no more waits than there is room for")
            switch job {
            case .resolve(let job): resolves.append(job)
            case .refresh(let job): refreshes.append(job)
            }
        }
    }

    var isEmpty: Bool { resolves.isEmpty && refreshes.isEmpty }

    /// Removes the first `count` resolve jobs. The caller must already hold them, because it still has to answer them.
    mutating func removeResolves(_ count: Int) {
        precondition(count <= resolves.count, "who is answered has asked")
        for job in resolves.prefix(count) { load = load - CatalogJob.resolve(job).load }
        resolves.removeFirst(count)
    }

    /// Removes and returns the refresh jobs for which `isDone` is true. The caller answers them.
    mutating func takeRefreshes(where isDone: (CatalogJob.RefreshJob) -> Bool) -> [CatalogJob.RefreshJob] {
        let done = refreshes.filter(isDone)
        let before = refreshes.count
        refreshes.removeAll(where: isDone)
        assert(refreshes.count + done.count == before, "who is answered waits no more, and nobody else is left out")
        for job in done { load = load - CatalogJob.refresh(job).load }
        return done
    }

    mutating func giveUp() {
        let (resolves, refreshes) = (self.resolves, self.refreshes)
        self = CatalogBacklog(holding: room)
        for job in resolves { job.reply.giveUp() }
        for job in refreshes { job.reply.giveUp() }
    }
}
