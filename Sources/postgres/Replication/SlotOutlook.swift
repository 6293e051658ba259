import Diagnostics

/// Forecast of the time at which the server discards WAL that the slot needs. The forecast uses samples of the retained
/// WAL and its limit, and returns notices to log. It returns each notice once, and again after an interval while the
/// state lasts.
///
/// Times are nanoseconds of one monotonic clock.
struct SlotOutlook {
    enum Level: Int, Comparable {
        case well, half, near, beyond

        static func < (left: Level, right: Level) -> Bool { left.rawValue < right.rawValue }
    }

    struct Sample: Equatable {
        var at: UInt64
        /// Number of bytes of WAL that the server retains for the slot.
        var kept: Int64
        /// Limit of the retained WAL in bytes; nil if only the server's disk limits it.
        var limit: Int64?
        /// True if the next checkpoint may remove WAL that the hub has not read yet.
        var isUnreserved = false
    }

    struct Notice: Equatable {
        var level: Level
        /// Number of seconds until the limit is reached at the recent growth; nil if the retained WAL does not grow.
        var secondsLeft: Int64?
    }

    private(set) var level = Level.well
    /// Recent samples. Growth is measured over some minutes, not between two samples.
    private var samples: [Sample] = []
    private var saidAt: UInt64 = 0

    /// Number of samples for measuring growth. They cover a few minutes.
    private static let window = 16
    /// Percentage of the limit from which the level is `half`.
    private static let half: Int64 = 50
    /// Percentage of the limit from which the level is `near`.
    private static let near: Int64 = 80

    /// Adds a sample and returns the notice to log; nil if there is none. A return to the level `.well` gives a notice,
    /// too.
    mutating func take(_ sample: Sample, reminding interval: UInt64) -> Notice? {
        samples.append(sample)
        if samples.count > Self.window { samples.removeFirst() }
        let before = level
        level = Self.level(of: sample)
        let isNews = level > before || level == .well && before != .well
        guard isNews || level != .well && sample.at >= saidAt + interval else { return nil }
        saidAt = sample.at
        return Notice(level: level, secondsLeft: secondsLeft)
    }

    private static func level(of sample: Sample) -> Level {
        if sample.isUnreserved { return .beyond }
        guard let limit = sample.limit else { return .well }
        let percent = Double(sample.kept) / Double(max(1, limit)) * 100
        return percent >= Double(near) ? .near : percent >= Double(half) ? .half : .well
    }

    private var secondsLeft: Int64? {
        guard let first = samples.first, let last = samples.last, let limit = last.limit, last.at > first.at,
            last.kept > first.kept
        else { return nil }
        let perSecond = Double(last.kept - first.kept) / (Double(last.at - first.at) / 1e9)
        assert(perSecond > 0, "a forecast needs growth")
        let left = Double(max(0, limit - last.kept)) / perSecond
        return left < Double(Int64.max) ? Int64(left) : nil
    }
}
