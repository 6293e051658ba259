/// Goal for a figure of a benchmark: a bound for the figure itself or for its ratio to the baseline.
public enum Target: Sendable, Equatable {
    case ratioAtLeast(Double)
    case valueAtLeast(Double)
    case valueAtMost(Double)
}

/// Figure of a benchmark scenario, with the figure of the baseline from the same run.
public struct BenchResult: Sendable, Equatable {
    public struct Baseline: Sendable, Equatable {
        public var name: String
        public var values: Samples

        public init(_ name: String, _ values: Samples) {
            self.name = name
            self.values = values
        }
    }

    public var scenario: String
    public var caseName: String
    public var metric: String
    public var unit: String
    public var values: Samples
    public var baseline: Baseline?
    public var target: Target?
    /// True if smaller values are better, such as for durations. `ratios` are then inverted, so that a larger ratio is
    /// always better.
    public var isLessBetter = false
    /// True if the figure is compared with its target. False for a small run, which only shows that the benchmark
    /// works.
    public var isJudged = true

    public init(
        scenario: String, caseName: String, metric: String, unit: String, values: Samples, baseline: Baseline? = nil,
        target: Target? = nil, isLessBetter: Bool = false
    ) {
        self.scenario = scenario
        self.caseName = caseName
        self.metric = metric
        self.unit = unit
        self.values = values
        self.baseline = baseline
        self.target = target
        self.isLessBetter = isLessBetter
    }

    /// Ratios of the figure to the baseline, round by round; inverted if smaller values are better. A ratio above 1 is
    /// better than the baseline.
    public var ratios: Samples? {
        baseline.map { isLessBetter ? $0.values.ratios(to: values) : values.ratios(to: $0.values) }
    }
    public var ratio: Double? { ratios?.median }

    /// True if the figure reaches its target; nil if it has no target or comes from a small run.
    public var isReached: Bool? {
        guard isJudged, let target else { return nil }
        switch target {
        case .ratioAtLeast(let least): return ratio.map { $0 >= least }
        case .valueAtLeast(let least): return values.median >= least
        case .valueAtMost(let most): return values.median <= most
        }
    }
}
