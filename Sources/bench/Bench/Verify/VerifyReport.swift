/// Result of one verification run.
public struct VerifyReport: Sendable {
    public struct FaultLine: Sendable {
        public var fault: String
        public var times: Int
        /// Number of findings of the kinds `missing` and `stuck` that were noticed after this fault and before the next
        /// one.
        public var lost: Int
        /// Number of the findings in `lost` that concern real clients.
        public var lostOfReal: Int
    }

    public struct KindLine: Sendable {
        public var kind: String
        public var clients: Int
        public var deliveries: Int
        /// Number of changes that clients received again after a cut. The contract allows this.
        public var repeated: Int
        /// Maximum number of seconds between the reception of a change in `repeated` and the cut before its repetition.
        public var oldestRepeatSeconds: Double
        /// Number of missing changes of which the hub told the clients that had to receive them.
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
    /// Descriptions of a few findings of each kind.
    public var findings: [String] = []
    /// Tests that the run omitted, with the reasons, and a remark if the run was interrupted.
    public var remarks: [String] = []

    /// True if a signal ended the run, so that some changes had no time to arrive.
    public var wasInterrupted = false

    public var faultsDone: Int { faults.reduce(0) { $0 + $1.times } }
    /// True if the run was interrupted or found a fault of the hub.
    public var isVoid: Bool { wasInterrupted || counts.contains { $0.count > 0 } }
}
