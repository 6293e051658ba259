/// What came of a run.
public struct VerifyReport: Sendable {
    public struct FaultLine: Sendable {
        public var fault: String
        public var times: Int
        /// Missing with nobody told, of all clients and of the real ones.
        public var lost: Int
        public var lostOfReal: Int
    }

    public struct KindLine: Sendable {
        public var kind: String
        public var clients: Int
        public var deliveries: Int
        /// Came again across a cut, as it may; the oldest had been received so many seconds before it.
        public var repeated: Int
        public var oldestRepeatSeconds: Double
        /// Missing, and told.
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
    /// By what they are, all of them, those that were not found with 0.
    public var counts: [(kind: String, count: Int)] = []
    /// In words, the first few.
    public var findings: [String] = []
    /// What was left out, and why.
    public var remarks: [String] = []

    /// Ended by a signal: it has not seen everything arrive.
    public var wasInterrupted = false

    public var faultsDone: Int { faults.reduce(0) { $0 + $1.times } }
    public var isVoid: Bool { wasInterrupted || counts.contains { $0.count > 0 } }
}
