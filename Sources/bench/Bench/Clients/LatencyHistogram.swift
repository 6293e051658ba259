/// Histogram of durations in microseconds. Each bucket is at most 3 % wide. The histogram gives every percentile with
/// little memory, and histograms of several processes can be added.
public struct LatencyHistogram: Sendable, Equatable {
    /// Number of buckets between a duration and its double. Durations below this number of microseconds have one bucket
    /// for each microsecond.
    private static let steps = 32
    private static let stepBits = 5
    /// Longest duration that has its own bucket, in microseconds (about 70 minutes). Longer durations are counted as
    /// this one.
    private static let longest: Int64 = 1 << 32

    private var buckets: [UInt64]
    public private(set) var count: UInt64 = 0
    public private(set) var maximum: Int64 = 0

    public init() {
        buckets = Array(repeating: 0, count: Self.bucket(of: Self.longest) + 1)
    }

    public mutating func add(_ microseconds: Int64) {
        let microseconds = min(max(microseconds, 0), Self.longest)
        buckets[Self.bucket(of: microseconds)] += 1
        count += 1
        maximum = max(maximum, microseconds)
    }

    public mutating func add(_ other: LatencyHistogram) {
        for index in buckets.indices { buckets[index] += other.buckets[index] }
        count += other.count
        maximum = max(maximum, other.maximum)
    }

    /// Returns a duration in microseconds that `share` (0 to 1) of all durations do not exceed; nil if there are none.
    public func percentile(_ share: Double) -> Double? {
        guard count > 0 else { return nil }
        let rank = max(1, UInt64((share * Double(count)).rounded(.up)))
        var seen: UInt64 = 0
        for index in buckets.indices {
            seen += buckets[index]
            if seen >= rank { return min(Self.middle(of: index), Double(maximum)) }
        }
        return Double(maximum)
    }

    private static func bucket(of value: Int64) -> Int {
        guard value >= steps else { return Int(value) }
        let shift = 63 - value.leadingZeroBitCount - stepBits
        return (shift + 1) * steps + Int(value >> Int64(shift)) - steps
    }

    private static func middle(of bucket: Int) -> Double {
        guard bucket >= steps else { return Double(bucket) }
        let shift = bucket / steps - 1
        let first = Int64(bucket % steps + steps) << Int64(shift)
        return Double(first) + Double(Int64(1) << Int64(shift) - 1) / 2
    }
}

extension LatencyHistogram {
    /// Text of the histogram on one line, for another process: the maximum, and `bucket:count` for each bucket that is
    /// not empty.
    var text: String {
        let filled = buckets.indices.filter { buckets[$0] > 0 }.map { "\($0):\(buckets[$0])" }
        return (["\(maximum)"] + filled).joined(separator: " ")
    }

    init?(text: String) {
        self.init()
        let words = text.split(separator: " ")
        guard let first = words.first, let maximum = Int64(first) else { return nil }
        self.maximum = maximum
        for word in words.dropFirst() {
            let parts = word.split(separator: ":")
            guard parts.count == 2, let index = Int(parts[0]), buckets.indices.contains(index),
                let number = UInt64(parts[1])
            else { return nil }
            buckets[index] = number
            count += number
        }
    }
}
