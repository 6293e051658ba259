/// Rules for delivering changes in batches. In a steady flow, a batch is delivered when its first change has waited for
/// `maximumDelay`, or when it has too many changes.
public struct BatchWindow: Sendable, Hashable {
    /// Pause in the changes after which the batch is delivered.
    public var quietTime: Duration
    /// Maximum waiting time of a change.
    public var maximumDelay: Duration
    /// Number of changes with which a batch is delivered at once.
    public var maximumChanges: Int

    /// Creates rules.
    ///
    /// - Parameters:
    ///   - quietTime: pause in the changes after which the batch is delivered.
    ///   - maximumDelay: maximum waiting time of a change; at least `quietTime`.
    ///   - maximumChanges: number of changes with which a batch is delivered at once.
    public init(quietTime: Duration, maximumDelay: Duration, maximumChanges: Int = 1000) {
        self.quietTime = quietTime
        self.maximumDelay = max(maximumDelay, quietTime)
        self.maximumChanges = maximumChanges
    }

    /// Gathers changes for 300 ms, and in a steady flow for a second.
    public static let standard = BatchWindow(quietTime: .milliseconds(300), maximumDelay: .seconds(1))
    /// Gathers changes for a second, and in a steady flow for five: for large imports.
    public static let bulk = BatchWindow(quietTime: .seconds(1), maximumDelay: .seconds(5), maximumChanges: 5000)
    /// Delivers changes at once, for example in a chat.
    public static let immediate = BatchWindow(quietTime: .zero, maximumDelay: .zero)
}

/// Collects changes of one or several tables in the order of commits. A batch has whole transactions: it ends between
/// two commit times. Only a transaction larger than four times the maximum is divided.
struct Batcher: Sendable {
    private let window: BatchWindow
    private let windows: [String: BatchWindow]
    private var pending: [RowChange] = []
    /// Latest delivery time of the first waiting change. `quietAt` is the end of the quiet time after the last change.
    private var overdueAt: Duration?
    private var quietAt: Duration?

    /// - Parameter windows: windows by table, for tables with their own.
    init(_ window: BatchWindow, windows: [String: BatchWindow] = [:]) {
        self.window = window
        self.windows = windows
    }

    var isEmpty: Bool { pending.isEmpty }
    var nextWake: Duration? { [overdueAt, quietAt].compactMap { $0 }.min() }

    mutating func add(_ change: RowChange, at now: Duration) {
        let own = windows[change.table] ?? window
        pending.append(change)
        overdueAt = min(overdueAt ?? now + own.maximumDelay, now + own.maximumDelay)
        // Order is kept: if one change may not wait, the changes before and after it are delivered with it.
        let hasUrgent = quietAt.map { $0 <= now } ?? false
        quietAt = hasUrgent ? quietAt : now + own.quietTime
    }

    /// Returns the changes to deliver now, if any.
    mutating func due(at now: Duration) -> [RowChange]? {
        guard !pending.isEmpty else { return nil }
        if let quietAt, now >= quietAt { return flush() }
        let isTooMuch = pending.count >= window.maximumChanges
        guard isTooMuch || overdueAt.map({ now >= $0 }) == true else { return nil }
        guard let end = lastBoundary else { return pending.count >= 4 * window.maximumChanges ? flush() : nil }
        let batch = Array(pending[..<end])
        pending.removeFirst(end)
        // The rest arrived no earlier than the transaction that ended before it.
        overdueAt = pending.last.map { now + (windows[$0.table] ?? window).maximumDelay }
        return batch
    }

    /// Returns all waiting changes. Called before the app is suspended, before sign-out, and before other items that
    /// must keep their order.
    mutating func flush() -> [RowChange]? {
        guard !pending.isEmpty else { return nil }
        defer {
            pending = []
            (overdueAt, quietAt) = (nil, nil)
        }
        return pending
    }

    mutating func discard() { _ = flush() }

    /// Index behind the last transaction that is certainly complete, because another one has begun since.
    private var lastBoundary: Int? {
        guard let last = pending.last else { return nil }
        return pending.lastIndex { $0.commitTimestamp != last.commitTimestamp }.map { $0 + 1 }
    }
}
