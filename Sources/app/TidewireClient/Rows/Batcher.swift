/// When changes are handed over together. A steady flow does not starve: what has waited for `longest` goes, and so does what
/// has become too much.
public struct BatchWindow: Sendable, Hashable {
    /// They are handed over when nothing has come for so long.
    public var quiet: Duration
    /// No change waits longer.
    public var longest: Duration
    public var maximumChanges: Int

    public init(quiet: Duration, longest: Duration, maximumChanges: Int = 1000) {
        self.quiet = quiet
        self.longest = max(longest, quiet)
        self.maximumChanges = maximumChanges
    }

    public static let standard = BatchWindow(quiet: .milliseconds(300), longest: .seconds(1))
    public static let bulk = BatchWindow(quiet: .seconds(1), longest: .seconds(5), maximumChanges: 5000)
    /// At once, as chat wants it.
    public static let immediate = BatchWindow(quiet: .zero, longest: .zero)
}

/// Collects changes of one or several tables in the order of commits. A batch holds whole transactions: it ends between two
/// commit times, and only a transaction that is larger than four times the maximum is cut.
struct Batcher: Sendable {
    private let window: BatchWindow
    private let windows: [String: BatchWindow]
    private var pending: [RowChange] = []
    /// The first that waits, and when the latest came, each with what its table allows.
    private var overdueAt: Duration?
    private var quietAt: Duration?

    /// `windows` by table, for those that have their own.
    init(_ window: BatchWindow, windows: [String: BatchWindow] = [:]) {
        self.window = window
        self.windows = windows
    }

    var isEmpty: Bool { pending.isEmpty }
    var nextWake: Duration? { [overdueAt, quietAt].compactMap { $0 }.min() }

    mutating func add(_ change: RowChange, at now: Duration) {
        let own = windows[change.table] ?? window
        pending.append(change)
        overdueAt = min(overdueAt ?? now + own.longest, now + own.longest)
        // Whatever comes after a change that may not wait goes with it, and whatever was before it, too: order is kept.
        let hasUrgent = quietAt.map { $0 <= now } ?? false
        quietAt = hasUrgent ? quietAt : now + own.quiet
    }

    /// What is to be handed over now, if anything.
    mutating func due(at now: Duration) -> [RowChange]? {
        guard !pending.isEmpty else { return nil }
        if let quietAt, now >= quietAt { return flush() }
        let isTooMuch = pending.count >= window.maximumChanges
        guard isTooMuch || overdueAt.map({ now >= $0 }) == true else { return nil }
        guard let end = lastBoundary else { return pending.count >= 4 * window.maximumChanges ? flush() : nil }
        let batch = Array(pending[..<end])
        pending.removeFirst(end)
        // The rest has waited no longer than the transaction that ended before it.
        overdueAt = pending.last.map { now + (windows[$0.table] ?? window).longest }
        return batch
    }

    /// Everything: before the app is suspended, somebody signs out or something else is to be told in its order.
    mutating func flush() -> [RowChange]? {
        guard !pending.isEmpty else { return nil }
        defer {
            pending = []
            (overdueAt, quietAt) = (nil, nil)
        }
        return pending
    }

    mutating func discard() { _ = flush() }

    /// Behind the last transaction that is certainly whole: another one has begun since.
    private var lastBoundary: Int? {
        guard let last = pending.last else { return nil }
        return pending.lastIndex { $0.commitTimestamp != last.commitTimestamp }.map { $0 + 1 }
    }
}
