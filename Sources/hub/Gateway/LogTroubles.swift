import Synchronization

/// Ability of a project's loops to read the event log.
struct LogTroubles: ~Copyable, Sendable {
    private let hasFailed = Atomic<Bool>(false)
    private let troubles = Mutex<[Int: String]>([:])

    /// True if no loop has trouble with reading the log.
    var isPossible: Bool { trouble == nil && !hasFailed.load(ordering: .relaxed) }

    /// Reason why a loop cannot read the log now; nil if each can.
    var trouble: String? { troubles.withLock { $0.values.min() } }

    /// Records the reason why a loop cannot read the log now; nil if it can.
    func note(_ trouble: String?, on loop: Int) { troubles.withLock { $0[loop] = trouble } }

    /// Records that a loop cannot read the log any more. Clients are refused then. Returns true the first time.
    func fail() -> Bool { !hasFailed.exchange(true, ordering: .relaxed) }
}
