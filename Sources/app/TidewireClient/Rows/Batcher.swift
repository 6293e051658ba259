/// Rules for delivering changes in batches. A batch is delivered after a pause in the changes. If they do not pause, it
/// is delivered when its first change has waited for `maximumDelay`, or when it has `maximumChanges` changes.
public struct BatchWindow: Sendable, Hashable {
    /// Length of a pause in the changes after which the batch is delivered.
    public var quietTime: Duration
    /// Longest time for which a change waits for its batch.
    public var maximumDelay: Duration
    /// Number of changes at which the batch is delivered without waiting.
    public var maximumChanges: Int

    /// Creates rules.
    ///
    /// - Parameters:
    ///   - quietTime: length of a pause in the changes after which the batch is delivered.
    ///   - maximumDelay: longest time for which a change waits for its batch; at least `quietTime`.
    ///   - maximumChanges: number of changes at which the batch is delivered without waiting.
    public init(quietTime: Duration, maximumDelay: Duration, maximumChanges: Int = 1000) {
        self.quietTime = quietTime
        self.maximumDelay = max(maximumDelay, quietTime)
        self.maximumChanges = maximumChanges
    }

    /// Delivers after a pause of 300 ms, at the latest after one second.
    public static let standard = BatchWindow(quietTime: .milliseconds(300), maximumDelay: .seconds(1))
    /// Delivers after a pause of one second, at the latest after five seconds. For large imports.
    public static let bulk = BatchWindow(quietTime: .seconds(1), maximumDelay: .seconds(5), maximumChanges: 5000)
    /// Delivers every change immediately, for example in a chat.
    public static let immediate = BatchWindow(quietTime: .zero, maximumDelay: .zero)
}

/// Collector of changes of one or several tables, in the order of commits. A batch contains whole transactions. Only a
/// transaction with more than four times `maximumChanges` changes is divided.
struct Batcher: Sendable {
    private let window: BatchWindow
    private let windows: [String: BatchWindow]
    private var pending: [RowChange] = []
    /// Time by which the oldest waiting change must be delivered, even if the changes do not pause; nil if none waits.
    private var overdueAt: Duration?
    /// Time at which the changes have paused long enough for their batch to be delivered; nil if none waits.
    private var quietAt: Duration?

    /// Creates a collector.
    ///
    /// - Parameter windows: rules by table name, for tables to which `window` does not apply.
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
        // The order is kept: if one change must not wait, all changes before it are delivered with it.
        let hasUrgent = quietAt.map { $0 <= now } ?? false
        quietAt = hasUrgent ? quietAt : now + own.quietTime
    }

    /// Removes and returns the changes that must be delivered now; nil if there are none.
    mutating func due(at now: Duration) -> [RowChange]? {
        guard !pending.isEmpty else { return nil }
        if let quietAt, now >= quietAt { return flush() }
        let isTooMuch = pending.count >= window.maximumChanges
        guard isTooMuch || overdueAt.map({ now >= $0 }) == true else { return nil }
        guard let end = lastBoundary else { return pending.count >= 4 * window.maximumChanges ? flush() : nil }
        let batch = Array(pending[..<end])
        pending.removeFirst(end)
        // The remaining changes arrived after the transaction that has just ended.
        overdueAt = pending.last.map { now + (windows[$0.table] ?? window).maximumDelay }
        return batch
    }

    /// Removes and returns all waiting changes; nil if there are none. Called before the app is suspended, before
    /// sign-out, and before an item that must follow them.
    mutating func flush() -> [RowChange]? {
        guard !pending.isEmpty else { return nil }
        defer {
            pending = []
            (overdueAt, quietAt) = (nil, nil)
        }
        return pending
    }

    mutating func discard() { _ = flush() }

    /// Index after the last transaction among the waiting changes that is certainly complete, because a later one has
    /// begun; nil if there is none.
    private var lastBoundary: Int? {
        guard let last = pending.last else { return nil }
        return pending.lastIndex { $0.commitTimestamp != last.commitTimestamp }.map { $0 + 1 }
    }
}
