/// Scenario of `tidewire bench`: a benchmark that measures the hub and its baseline in the same run.
public protocol Scenario: Sendable {
    var name: String { get }
    /// Sentence about the scenario, for lists of scenarios.
    var summary: String { get }
    /// Description of the run, its method and its baseline, so that a reader can judge the figures.
    var discussion: String { get }

    func run(_ settings: BenchSettings) throws -> [BenchResult]
}

public enum Scenarios {
    public static let all: [any Scenario] = [
        IngestScenario(), DecodeScenario(), LogScenario(), MatchScenario(), FanoutScenario(), IdleScenario(),
        LatencyScenario(), RlsScenario(), BroadcastScenario(), PresenceScenario(), JoinsScenario(),
        HostileScenario(), ResumeScenario(), IncidentScenario(), ClientScenario(),
    ]
}

/// Settings of a benchmark run.
public struct BenchSettings: Sendable {
    /// True for a run that is small enough for a smoke test.
    public var isQuick = false
    /// Number of rounds; nil for the scenario's usual number.
    public var rounds: Int?
    /// Text that the names of cases must contain; empty for all cases.
    public var only = ""
    /// Directory for the run's files. It should be on the same kind of disk as a hub's data.
    public var directory = "/var/tmp"
    /// Function that receives a message about each step.
    public var progress: @Sendable (String) -> Void = { _ in }

    public init() {}

    func includes(_ caseName: String) -> Bool { only.isEmpty || caseName.contains(only) }

    func rounds(usually: Int) -> Int { rounds ?? (isQuick ? 2 : usually) }
}

/// Error of a benchmark that cannot measure its figures.
public struct BenchFailure: Error, Sendable, CustomStringConvertible {
    public var message: String
    public var hint: String?

    public init(_ message: String, hint: String? = nil) {
        self.message = message
        self.hint = hint
    }

    public var description: String { hint.map { message + "; " + $0 } ?? message }
}
