/// Measured values of one metric of a benchmark: one value for each round.
public struct Samples: Sendable, Equatable {
    public private(set) var values: [Double]

    public init(_ values: [Double] = []) { self.values = values }

    public mutating func add(_ value: Double) { values.append(value) }

    public var count: Int { values.count }
    public var minimum: Double { values.min() ?? .nan }
    public var maximum: Double { values.max() ?? .nan }

    /// Median of the values: the middle one, or the mean of the two in the middle.
    public var median: Double {
        guard !values.isEmpty else { return .nan }
        let sorted = values.sorted()
        let middle = sorted.count / 2
        return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
    }

    /// Returns the ratio to another series of the same run, round by round. A disturbance of the machine affects both
    /// values of a round, so the ratio varies less than either.
    public func ratios(to baseline: Samples) -> Samples {
        precondition(count == baseline.count, "both are measured in every round")
        return Samples(zip(values, baseline.values).map { $0 / $1 })
    }
}
