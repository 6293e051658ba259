import Diagnostics

/// How near the server is to letting go of the slot's WAL. In: what it keeps and may keep, now and then. Out: what is worth
/// saying, each thing once and then now and then for as long as it lasts.
///
/// Nanoseconds, on one clock that does not go back.
struct SlotOutlook {
    enum Level: Int, Comparable {
        case well, half, near, beyond

        static func < (left: Level, right: Level) -> Bool { left.rawValue < right.rawValue }
    }

    struct Sample: Equatable {
        var at: UInt64
        /// WAL that the server keeps for the slot, in bytes.
        var kept: Int64
        /// Nil: as much as its disk holds.
        var limit: Int64?
        /// The next checkpoint may take what was not read yet.
        var isUnreserved = false
    }

    struct Notice: Equatable {
        var level: Level
        /// Until there is no more room, as fast as it went lately; nil where it does not grow.
        var secondsLeft: Int64?
    }

    private(set) var level = Level.well
    /// What it was lately: growth is seen over some minutes, not from one look to the next.
    private var samples: [Sample] = []
    private var saidAt: UInt64 = 0

    /// Looks that growth is seen over: a few minutes.
    private static let window = 16
    private static let half: Int64 = 50
    private static let near: Int64 = 80

    /// What is to be said, if anything. `.well` is said once, after it was not.
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
        let left = Double(max(0, limit - last.kept)) / perSecond
        return left < Double(Int64.max) ? Int64(left) : nil
    }
}
