import Synchronization

/// Distribution of whole numbers, counted in buckets. Larger values have wider buckets: 16 for each power of two.
///
/// A quantile of the histogram is never below the true one and at most 1/16 (6.25 %) above it; below 32 it is exact.
/// Recording takes no lock. A reader may see an observation in its bucket before it is included in the sum and in the
/// largest value.
public final class Histogram: Sendable {
    /// Unit of the recorded values. It determines how the metric writes them.
    public enum Unit: Sendable {
        /// Duration, recorded in nanoseconds and written in seconds, which is Prometheus' base unit.
        case seconds
        case bytes
    }

    static let subBucketBits = 4
    static let subBuckets = 1 << subBucketBits
    static let bucketCount = 976

    let name: String
    let help: String
    public let unit: Unit
    private let buckets: InlineArray<976, Atomic<UInt64>>
    private let sum = Atomic<UInt64>(0)
    private let largest = Atomic<UInt64>(0)

    public init(_ name: String = "", _ help: String = "", unit: Unit) {
        precondition(
            Self.bucketCount == Self.index(of: .max) + 1, "every value must have a bucket and every bucket a value")
        (self.name, self.help, self.unit) = (name, help, unit)
        buckets = InlineArray { _ in Atomic(0) }
    }

    public func record(_ value: UInt64) {
        buckets[Self.index(of: value)].wrappingAdd(1, ordering: .relaxed)
        sum.wrappingAdd(value, ordering: .relaxed)
        raiseLargest(to: value)
    }

    /// Raises the largest value. `Atomic.max` is not used, because up to Swift 6.3 it compares unsigned numbers as
    /// signed ones (swiftlang/swift#91176).
    private func raiseLargest(to value: UInt64) {
        var seen = largest.load(ordering: .relaxed)
        while value > seen {
            let (exchanged, original) = largest.weakCompareExchange(
                expected: seen, desired: value, ordering: .relaxed)
            guard !exchanged else { return }
            seen = original
        }
    }

    /// Records a duration. Clocks may step back between two readings; a negative duration counts as zero.
    public func record(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        guard seconds >= 0, attoseconds >= 0 else { return record(UInt64(0)) }
        // If a duration has fewer than 18 thousand million seconds, its nanoseconds fit 64 bits.
        guard seconds < 18_000_000_000 else { return record(UInt64.max) }
        record(UInt64(seconds) * 1_000_000_000 + UInt64(attoseconds) / 1_000_000_000)
    }

    public func snapshot() -> HistogramSnapshot {
        var counts: [UInt64] = []
        counts.reserveCapacity(Self.bucketCount)
        for index in 0..<Self.bucketCount {
            counts.append(buckets[index].load(ordering: .relaxed))
        }
        return HistogramSnapshot(
            counts: counts, sum: sum.load(ordering: .relaxed), largest: largest.load(ordering: .relaxed))
    }

    /// Returns the bucket of a value. Values below 16 have one bucket each. For larger values, the position of the
    /// highest bit and the four bits after it determine the bucket.
    static func index(of value: UInt64) -> Int {
        guard value >= subBuckets else { return Int(value) }
        let shift = UInt64.bitWidth - 1 - value.leadingZeroBitCount - subBucketBits
        return shift * subBuckets + Int(value >> shift)
    }

    /// Returns the largest value that falls into a bucket.
    static func upperBound(ofBucket index: Int) -> UInt64 {
        guard index >= subBuckets else { return UInt64(index) }
        let shift = index / subBuckets - 1
        let leadingBits = UInt64(index % subBuckets + subBuckets)
        return leadingBits << shift | (1 << UInt64(shift) - 1)
    }
}

/// Content of a histogram at one time.
public struct HistogramSnapshot: Sendable {
    let counts: [UInt64]
    public let sum: UInt64
    public let largest: UInt64

    public var count: UInt64 {
        counts.reduce(0, &+)
    }

    /// Returns the smallest bound that at least this share of the recorded values does not exceed; nil if nothing was
    /// recorded.
    public func quantile(_ share: Double) -> UInt64? {
        precondition((0...1).contains(share), "a quantile is a share between 0 and 1")
        let total = count
        guard total > 0 else { return nil }
        let rank = max(1, UInt64((Double(total) * share).rounded(.up)))
        var seen: UInt64 = 0
        for (index, count) in counts.enumerated() {
            seen += count
            if seen >= rank { return min(Histogram.upperBound(ofBucket: index), largest) }
        }
        return largest
    }

    /// Returns the number of values that are at most `bound`. Exact if `bound` is the largest value of a bucket.
    func count(atMost bound: UInt64) -> UInt64 {
        counts.prefix(Histogram.index(of: bound) + 1).reduce(0, &+)
    }
}
