/// Something that is measured, the hub and its baseline in the same run.
public protocol Scenario: Sendable {
    var name: String { get }
    /// One sentence, for lists.
    var summary: String { get }
    /// What is run, how, and against what: the reader of the figures must be able to judge them.
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

/// How a benchmark is run.
public struct BenchSettings: Sendable {
    /// Small enough for a smoke test.
    public var isQuick = false
    /// How often each thing is measured.
    public var rounds: Int?
    /// Only cases whose name has this in it.
    public var only = ""
    /// Where files go: a disk, as the hub's data would be.
    public var directory = "/var/tmp"
    /// Told what is being done.
    public var progress: @Sendable (String) -> Void = { _ in }

    public init() {}

    func includes(_ caseName: String) -> Bool { only.isEmpty || caseName.contains(only) }

    func rounds(usually: Int) -> Int { rounds ?? (isQuick ? 2 : usually) }
}

/// Why there are no figures.
public struct BenchFailure: Error, Sendable, CustomStringConvertible {
    public var message: String
    public var hint: String?

    public init(_ message: String, hint: String? = nil) {
        self.message = message
        self.hint = hint
    }

    public var description: String { hint.map { message + "; " + $0 } ?? message }
}
