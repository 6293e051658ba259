import Synchronization

/// State of a project's loops as readers of the event log: which of them cannot read it, and why.
struct LogTroubles: ~Copyable, Sendable {
    private let hasFailed = Atomic<Bool>(false)
    private let troubles = Mutex<[Int: String]>([:])

    /// True if all loops can read the log.
    var isPossible: Bool { trouble == nil && !hasFailed.load(ordering: .relaxed) }

    /// Reason why some loop cannot read the log now; nil if all can.
    var trouble: String? { troubles.withLock { $0.values.min() } }

    /// Records why a loop cannot read the log now; nil if it can.
    func note(_ trouble: String?, on loop: Int) { troubles.withLock { $0[loop] = trouble } }

    /// Records that a loop can never read the log again, so that clients are refused. Returns true the first time.
    func fail() -> Bool { !hasFailed.exchange(true, ordering: .relaxed) }
}
