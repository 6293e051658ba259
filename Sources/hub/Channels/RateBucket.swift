import Synchronization

/// Rate limit that all loops of a project share without locks. A burst may use the amount of a whole window. After an
/// excess, the limit is free again within one window at most.
///
/// The bucket stores one number: the time at which everything taken would have been due if it had been taken evenly at
/// the rate. More may be taken while this time is less than one window ahead of the clock.
public final class RateBucket: Sendable {
    private let window: UInt64
    private let rate: Atomic<UInt64>
    private let settled = Atomic<UInt64>(0)

    /// Creates a bucket. `rate` is per second, 0 for no limit; `window` is in nanoseconds. After a window without use,
    /// rate × window can be taken immediately.
    public init(rate: Int, window: UInt64) {
        precondition(window > 0 && window <= 1 << 60, "a window is some time, and not centuries")
        self.window = window
        self.rate = Atomic(UInt64(clamping: rate))
    }

    public func setRate(_ rate: Int) { self.rate.store(UInt64(clamping: rate), ordering: .relaxed) }

    /// Takes the count from the bucket, even if less is left. Returns false and takes nothing if nothing is left.
    @discardableResult
    public func take(_ count: Int = 1, at nanoseconds: UInt64) -> Bool {
        guard !isUnlimited else { return true }
        let cost = cost(count)
        var old = settled.load(ordering: .relaxed)
        while true {
            let begin = max(old, nanoseconds)
            guard begin - nanoseconds < window else { return false }
            // The excess is limited to one window, so that a huge message does not block others for longer than that.
            let new = min(begin &+ cost, nanoseconds &+ window &+ window)
            let (exchanged, original) = settled.compareExchange(expected: old, desired: new, ordering: .relaxed)
            if exchanged { return true }
            old = original
        }
    }

    public func isExhausted(at nanoseconds: UInt64) -> Bool { !fits(0, at: nanoseconds) }

    /// True if this count can be taken from the bucket at the time without exceeding the limit.
    public func fits(_ count: Int, at nanoseconds: UInt64) -> Bool {
        guard !isUnlimited else { return true }
        let ahead = ahead(at: nanoseconds)
        return ahead < window && ahead &+ cost(count) <= window
    }

    /// Returns the average use of the limit in the last window, per second. A fraction counts as one, so that no client
    /// is refused although the level says that some is left.
    public func level(at nanoseconds: UInt64) -> RateLevel {
        let limit = rate.load(ordering: .relaxed)
        let (high, low) = limit.multipliedFullWidth(by: ahead(at: nanoseconds))
        guard high < window else { return RateLevel(rolling: Int(clamping: limit), limit: Int(clamping: limit)) }
        let (whole, begun) = window.dividingFullWidth((high, low))
        return RateLevel(rolling: Int(clamping: whole &+ (begun > 0 ? 1 : 0)), limit: Int(clamping: limit))
    }

    private var isUnlimited: Bool { rate.load(ordering: .relaxed) == 0 }

    private func ahead(at nanoseconds: UInt64) -> UInt64 {
        let settled = settled.load(ordering: .relaxed)
        return settled > nanoseconds ? settled - nanoseconds : 0
    }

    /// Returns the time in nanoseconds in which the rate allows this count, at most two windows.
    private func cost(_ count: Int) -> UInt64 {
        let rate = rate.load(ordering: .relaxed)
        guard rate > 0, count > 0 else { return 0 }
        let (product, overflow) = UInt64(count).multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? window &+ window : min(product / rate, window &+ window)
    }
}

/// Use of a rate limit, and the limit, per second.
public struct RateLevel: Sendable, Hashable {
    public let rolling: Int
    /// Maximum rate per second; 0 means no limit.
    public let limit: Int
    public var remaining: Int { max(0, limit - rolling) }
}
