import Catalog

/// The transactions that the log has from some place on, so many of the last, with where each begins.
///
/// A commit may be in the log before PostgreSQL shows what it did: for a moment, or for as long as it waits for a standby. So
/// what a snapshot shows is not all up to some place in the log; but all before the first that it does not show is in it.
struct RecentCommits {
    private var xids: [UInt32] = []
    private var offsets: [UInt64] = []
    private var next = 0
    private let maximum: Int

    init(maximum: Int) {
        precondition(maximum > 0, "something is remembered")
        self.maximum = maximum
    }

    var count: Int { xids.count }

    mutating func note(_ xid: UInt32, at offset: UInt64) {
        if xids.count < maximum {
            xids.append(xid)
            offsets.append(offset)
        } else {
            xids[next] = xid
            offsets[next] = offset
        }
        next = (next + 1) % maximum
        assert(xids.count == offsets.count && xids.count <= maximum, "it remembers the last ones")
    }

    /// History has a hole: what was before it has nothing to do with what comes.
    mutating func forgetAll() {
        xids = []
        offsets = []
        next = 0
    }

    /// Where the first of them begins that was not seen.
    func firstUnseen(by seen: VisibleTransactions) -> UInt64? {
        var first: UInt64?
        for place in xids.indices where !seen.contains(xids[place]) {
            first = min(first ?? .max, offsets[place])
        }
        return first
    }
}
