/// Result of a run.
public struct VerifyReport: Sendable {
    public struct FaultLine: Sendable {
        public var fault: String
        public var times: Int
        /// Changes that are missing although the client was not told, of all clients and of the real ones.
        public var lost: Int
        public var lostOfReal: Int
    }

    public struct KindLine: Sendable {
        public var kind: String
        public var clients: Int
        public var deliveries: Int
        /// Changes that came again across a cut, as they may. The oldest had come this many seconds before the cut.
        public var repeated: Int
        public var oldestRepeatSeconds: Double
        /// Missing changes of which the client was told.
        public var told: Int
    }

    public var seed: UInt64
    public var seconds: Int
    public var clients = 0
    public var transactions = 0
    public var failedTransactions = 0
    public var changes = 0
    public var deliveries = 0
    public var connections = 0
    public var bytesLostOnTheWay = 0
    public var kinds: [KindLine] = []
    public var faults: [FaultLine] = []
    /// Number of findings of each kind, 0 included.
    public var counts: [(kind: String, count: Int)] = []
    /// First few findings, in words.
    public var findings: [String] = []
    /// Omitted tests, with the reasons.
    public var remarks: [String] = []

    /// True if a signal ended the run, so that not all arrivals were seen.
    public var wasInterrupted = false

    public var faultsDone: Int { faults.reduce(0) { $0 + $1.times } }
    public var isVoid: Bool { wasInterrupted || counts.contains { $0.count > 0 } }
}
