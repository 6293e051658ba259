import Change
import Cluster
import Diagnostics
import EventLog
import Replication
import System

/// Error of a node that no longer holds the slot: another node has it, or the stream did not acknowledge.
struct TenureLost: Error, CustomStringConvertible {
    var words: String
    var description: String { words }
}

/// Sink of the node that holds the slot. It appends transactions to the cluster's stream; when the stream has
/// acknowledged them, they go into the node's own log by the same way as on every other node.
///
/// So what is confirmed to PostgreSQL is in the stream and in this node's log. If an acknowledgement is lost, refused or
/// late, nothing is decided here: the tenure ends, and what the stream really has is read from it.
final class StreamSink: TransactionSink {
    private let replica: Replica
    private let link: any StreamWriter
    private let tenure: UInt64
    private let pause: StreamPause
    /// True if the node is to give the slot up.
    private let isGivenUp: () -> Bool
    /// Called from time to time while the node holds the slot.
    private let watch: (_ now: UInt64) -> Void
    private var batch = BatchBuilder()
    /// Position behind everything that was accepted; nil if the log has all of it.
    private var accepted: LSN?
    /// Time at which the stream from PostgreSQL was last known to run.
    private var streamedAt: UInt64
    /// Reason for which the tenure has ended; nil while it lasts.
    private(set) var loss: String?
    /// True if PostgreSQL has streamed in this tenure.
    private(set) var hasStreamed = false

    /// Time of the last record of the log's state in this tenure, which began with one.
    private var toldStateAt = Clock.monotonicNanoseconds()

    /// Interval between two such records. A node without a log begins at one, and retention removes the older ones.
    static let stateInterval: UInt64 = 600_000_000_000

    /// Time without a stream from PostgreSQL after which the node gives the slot up, so that another tries.
    static let patience: UInt64 = 10_000_000_000

    init(
        _ replica: Replica, _ link: any StreamWriter, tenure: UInt64, pause: StreamPause,
        isGivenUp: @escaping () -> Bool = { false }, watch: @escaping (_ now: UInt64) -> Void = { _ in }
    ) {
        self.isGivenUp = isGivenUp
        self.watch = watch
        self.replica = replica
        self.link = link
        self.tenure = tenure
        self.pause = pause
        streamedAt = Clock.monotonicNanoseconds()
    }

    private var log: LogSink { replica.log }
    var systemIdentifier: UInt64 { log.systemIdentifier }
    var position: LSN { accepted ?? log.position }
    var durablePosition: LSN { log.durablePosition }
    var pendingBytes: Int { batch.count + link.unacknowledgedBytes }
    var isNew: Bool { log.isNew }
    var lineage: Lineage? { log.lineage }
    var isLineageDamaged: Bool { log.isLineageDamaged }
    var messages: FollowedPublication? { log.messages }
    var lastTime: Int64? { log.lastTime }
    var hasNotes: Bool { log.hasNotes }
    func isBeginning(with slot: String) -> Bool { log.isBeginning(with: slot) }

    var isOver: Bool {
        loss != nil || isGivenUp() || !pause.isOn && Clock.monotonicNanoseconds() > streamedAt + Self.patience
    }

    func covered(_ position: LSN) {
        let now = Clock.monotonicNanoseconds()
        streamedAt = now
        hasStreamed = true
        tell(position, now)
    }

    private func tell(_ position: LSN, _ now: UInt64) {
        guard loss == nil else { return }
        watch(now)
        link.pulse(tenure: tenure, sequence: replica.reader.mark.sequence, covered: position, now: now)
        if let other = link.rival(of: tenure) { loss = "node \(other) holds the slot" }
    }

    // MARK: What changes the log

    func append(_ part: borrowing StorablePart) throws {
        let (isLast, end) = (part.isLast, part.info.endLSN)
        batch.add(part)
        if isLast { accepted = end }
    }

    func abandon() throws {
        if batch.dropTransaction() { batch.addAbandon() }
        if batch.isEmpty { accepted = nil }
    }

    func advance(to position: LSN) throws {
        guard position > self.position else { return }
        batch.add(progress: position)
        accepted = position
    }

    func prepare(for slot: String) throws { try record { $0.add(beginning: slot) } }

    func begin(systemIdentifier: UInt64, at position: LSN, after gap: Gap?) throws {
        let epoch = Self.newEpoch()
        try record { $0.add(begin: systemIdentifier, at: position, after: gap, epoch: epoch) }
    }

    func recordGap(_ gap: Gap, systemIdentifier: UInt64) throws {
        let epoch = Self.newEpoch()
        try record { $0.add(gap, system: systemIdentifier, epoch: epoch) }
    }

    func follow(_ lineage: Lineage) throws { try record { $0.add(lineage) } }

    func followMessages(_ publication: FollowedPublication?) throws {
        try flush()
        var publication = publication
        publication?.offset = log.appended?.offset ?? 0
        try record { $0.add(messages: publication) }
    }

    func followMemberships(_ publication: FollowedMemberships?) throws {
        try record { $0.add(memberships: publication) }
    }

    private static func newEpoch() -> UInt64 { UInt64.random(in: 1 ..< .max) }

    /// Appends one record durably.
    private func record(_ body: (inout BatchBuilder) -> Void) throws {
        try flush()
        body(&batch)
        try flush()
    }

    // MARK: Flushing

    /// Appends everything accepted to the stream, waits for its acknowledgements, and applies it to the log. After a
    /// `StorageStall` the next call goes on where this one stopped.
    func flush() throws {
        tell(log.durablePosition, Clock.monotonicNanoseconds())
        if let loss { throw TenureLost(words: loss) }
        try tellState()
        if !batch.isEmpty, !link.isWaiting { try send() }
        if link.isWaiting { try settle() }
        let now = Clock.monotonicNanoseconds()
        try replica.apply(now: now)
        if batch.isEmpty { accepted = nil }
        try replica.flush(now: now)
    }

    /// Appends the log's state from time to time, before the changes that wait.
    private func tellState() throws {
        let now = Clock.monotonicNanoseconds()
        guard now > toldStateAt + Self.stateInterval, !link.isWaiting, !replica.hasUnfinished else { return }
        var state = BatchBuilder()
        state.add(replica.state)
        guard try replica.append(state, by: link, tenure: tenure) else {
            throw over("the stream did not take the log's state")
        }
        toldStateAt = now
    }

    private func send() throws {
        let mark = replica.reader.mark
        guard let chain = mark.chain else { throw over("the chain of the stream is unknown") }
        do throws(NatsFailure) {
            try link.append(batch, replica.head(tenure), after: mark.sequence, chain)
        } catch {
            throw over(error.words)
        }
    }

    /// Waits for the acknowledgements. Throws a stall from time to time, so that PostgreSQL hears of the hub meanwhile.
    private func settle() throws {
        switch link.settle(within: 1_000_000_000) {
        case .stored(let messages):
            batch.removeAll()
            for message in messages {
                do throws(StreamDamage) {
                    try replica.take(message.sequence, message.bytes)
                } catch {
                    throw over("\(error)")
                }
            }
        case .waiting:
            throw StorageStall(
                operation: "append to", path: "the cluster's stream", reason: "no acknowledgement yet",
                hint: "look at the NATS servers: a majority of them must run")
        case .lost(let words): throw over(words)
        }
    }

    private func over(_ words: String) -> TenureLost {
        if loss == nil { loss = words }
        return TenureLost(words: words)
    }
}
