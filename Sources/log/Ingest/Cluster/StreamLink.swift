import Bytes
import Change
import Cluster
import Diagnostics
import Nats
import Replication
import System

/// Failure of the connection to the cluster's servers, in words.
struct NatsFailure: Error {
    var words: String
}

/// Writer of the stream, as a sink uses it.
protocol StreamWriter: AnyObject {
    /// True while messages wait for their acknowledgement.
    var isWaiting: Bool { get }
    var unacknowledgedBytes: Int { get }
    /// Sends a batch as messages that are stored only if they follow this sequence.
    func append(
        _ batch: borrowing BatchBuilder, _ head: StreamHead, after sequence: UInt64, _ chain: ClusterChain
    ) throws(NatsFailure)
    /// Waits until all messages are acknowledged or one is refused, at most for this time.
    func settle(within nanoseconds: UInt64) -> StreamOutcome
    /// Tells the other nodes that this one holds the slot, and how far the log covers the database.
    func pulse(tenure: UInt64, sequence: UInt64, covered: LSN, now: UInt64)
    /// Returns the node that holds the slot in a later tenure than this one; nil if none was heard of.
    func rival(of tenure: UInt64) -> String?
}

/// Message that was appended and acknowledged.
struct StoredMessage {
    var sequence: UInt64
    var bytes: [UInt8]
}

/// Outcome of an attempt to append messages.
enum StreamOutcome {
    case stored([StoredMessage])
    case waiting
    case lost(String)
}

/// Connection of a node to the stream of its log and to the other nodes. The ingest thread owns it.
final class StreamLink: StreamWriter {
    /// Message that is not acknowledged yet.
    private struct Pending {
        var number: UInt64
        var sequence: UInt64
        var bytes: [UInt8]
        var isStored = false
    }

    let jet: JetStream
    let names: ClusterNames
    private let node: String
    private let metrics: ProjectMetrics
    private var pending: [Pending] = []
    private var sentAt: UInt64 = 0
    private var refusal: String?
    private var told = Told()
    /// Last sign of life of a node that holds the slot.
    private(set) var heard: NodePulse?
    private let pulses: NatsSubscription
    /// Health of the stream, as the servers last told it; nil before that.
    private(set) var health: ClusterStatus.StreamHealth?
    private var askedAt: UInt64 = 0
    /// True while the node reads the stream. A feeder knows what it appends.
    var isReading = true
    /// Sequence of the last message that a feeder was heard to have.
    private(set) var known: UInt64 = 0
    /// Feeder that was heard last, with its tenure.
    private var feeder: (tenure: UInt64, node: String) = (0, "")

    /// Sign of life that this node last gave.
    private struct Told {
        var at: UInt64 = 0
        var pulse: NodePulse?
    }

    /// Time without an acknowledgement after which the tenure ends.
    private static let patience: UInt64 = 3_000_000_000
    /// Minimum interval between two signs of life that say something new, and maximum between any two.
    private static let quick: UInt64 = 5_000_000
    private static let slow: UInt64 = 900_000_000
    /// Interval at which the servers are asked about the stream.
    private static let healthInterval: UInt64 = 5_000_000_000

    init(_ jet: JetStream, _ names: ClusterNames, node: String, metrics: ProjectMetrics) throws(NatsError) {
        self.metrics = metrics
        self.jet = jet
        self.names = names
        self.node = node
        pulses = try jet.connection.subscribe(names.pulses, to: jet.inbox)
    }

    // MARK: Appending

    var isWaiting: Bool { !pending.isEmpty }
    var unacknowledgedBytes: Int { pending.reduce(0) { $0 + $1.bytes.count } }

    func append(
        _ batch: borrowing BatchBuilder, _ head: StreamHead, after sequence: UInt64, _ chain: ClusterChain
    ) throws(NatsFailure) {
        assert(pending.isEmpty, "one batch at a time")
        refusal = nil
        sentAt = Clock.monotonicNanoseconds()
        var slices = BatchSlices(batch.content, head, after: chain)
        var last = sequence
        while let message = slices.next() {
            let reply = jet.replySubject("put")
            guard let number = jet.reply(reply)?.number else { preconditionFailure("a reply subject has a number") }
            // An acknowledgement may come although the call fails, so the message counts as sent.
            pending.append(Pending(number: number, sequence: last + 1, bytes: message))
            do throws(NatsError) {
                try jet.connection.publish(
                    message.rawBytes, to: names.subject, reply: reply,
                    headers: [
                        ("Nats-Expected-Last-Sequence", String(last)), ("Nats-Expected-Stream", names.stream),
                    ])
            } catch {
                giveUp()
                throw NatsFailure(words: "\(error)")
            }
            last += 1
        }
    }

    /// Waits no longer for acknowledgements: what the stream has is read from it.
    func giveUp() { pending = [] }

    func settle(within nanoseconds: UInt64) -> StreamOutcome {
        let deadline = Clock.monotonicNanoseconds() + nanoseconds
        while true {
            collect()
            if let refusal {
                giveUp()
                return .lost(refusal)
            }
            if pending.allSatisfy(\.isStored) {
                metrics.clusterAcknowledgementSeconds.record(Clock.monotonicNanoseconds() - sentAt)
                let stored = pending.map { StoredMessage(sequence: $0.sequence, bytes: $0.bytes) }
                giveUp()
                return .stored(stored)
            }
            let now = Clock.monotonicNanoseconds()
            if now > sentAt + Self.patience {
                giveUp()
                return .lost("the stream did not acknowledge for \(Self.patience / 1_000_000_000) s")
            }
            guard now < deadline else { return .waiting }
            jet.bell.sleep(milliseconds: Int((deadline - now) / 1_000_000) + 1)
        }
    }

    /// Takes the letters that have arrived. Messages of the stream are kept for its reader: a candidate may lose to
    /// another node, and then reads on.
    private func collect() {
        let others = jet.take().letters.filter { !take($0) }
        if isReading { jet.keep(others) }
    }

    /// Takes a letter that is no message of the stream. Returns false for another letter.
    @discardableResult
    func take(_ letter: NatsLetter) -> Bool {
        if letter.subject == names.pulses {
            hear(letter)
            return true
        }
        guard let reply = jet.reply(letter.subject) else { return false }
        if reply.kind == "info" {
            health = ClusterStatus.StreamHealth(letter.payload) ?? health
            return true
        }
        guard reply.kind == "put" else { return false }
        guard let place = pending.firstIndex(where: { $0.number == reply.number }) else { return true }
        switch StreamAnswer(letter) {
        case .stored(pending[place].sequence): pending[place].isStored = true
        case .stored(let sequence):
            refusal = "the stream stored message \(pending[place].sequence) as message \(sequence)"
        case .refused(let answer):
            refusal =
                answer.code == JetStreamRefusal.wrongLastSequence
                ? "another node has appended to the stream" : "the stream refused a message: \(answer.text)"
        }
        return true
    }

    // MARK: Signs of life

    func pulse(tenure: UInt64, sequence: UInt64, covered: LSN, now: UInt64) {
        let pulse = NodePulse(node: node, tenure: tenure, sequence: sequence, covered: covered)
        let isNews = pulse != told.pulse
        guard now >= told.at + (isNews ? Self.quick : Self.slow) else { return }
        told = Told(at: now, pulse: pulse)
        // A sign that is lost is followed by the next one.
        try? jet.connection.publish(pulse.encoded.rawBytes, to: names.pulses)
    }

    private func hear(_ letter: NatsLetter) {
        guard let pulse = NodePulse(letter.payload), pulse.node != node || pulse.tenure != told.pulse?.tenure else {
            return
        }
        if pulse.tenure >= heard?.tenure ?? 0 { heard = pulse }
        known = max(known, pulse.sequence)
        feeder = (pulse.tenure, pulse.node)
    }

    /// Takes the last sign of life of a feeder.
    func takeHeard() -> NodePulse? {
        defer { heard = nil }
        return heard
    }

    /// Asks the servers about the stream from time to time. The answer comes as a letter.
    func askForHealth(now: UInt64) {
        guard askedAt == 0 || now > askedAt + Self.healthInterval else { return }
        askedAt = now
        try? jet.connection.publish(
            [UInt8]().rawBytes, to: "$JS.API.STREAM.INFO.\(names.stream)", reply: jet.replySubject("info"))
    }

    /// Name of the feeder of a tenure; nil if it was not heard.
    func feeder(of tenure: UInt64) -> String? { feeder.tenure == tenure ? feeder.node : nil }

    func rival(of tenure: UInt64) -> String? {
        collect()
        return heard.flatMap { $0.tenure > tenure ? $0.node : nil }
    }
}

/// Names of a log's stream and subjects at the servers.
struct ClusterNames: Sendable, Equatable {
    let stream: String
    let subject: String
    let pulses: String

    /// - Parameter key: name of the project with the characters that NATS allows.
    init(key: String) {
        stream = "TW_\(key)"
        subject = "tw.log.\(key)"
        pulses = "tw.pulse.\(key)"
    }
}

/// Sign of life of the node that holds the slot.
struct NodePulse: Sendable, Equatable {
    var node: String
    var tenure: UInt64
    /// Sequence of the last message that its log has.
    var sequence: UInt64
    /// Position before which a log with this sequence has all commits.
    var covered: LSN

    init(node: String, tenure: UInt64, sequence: UInt64, covered: LSN) {
        self.node = node
        self.tenure = tenure
        self.sequence = sequence
        self.covered = covered
    }

    var encoded: [UInt8] { Array("1 \(tenure) \(sequence) \(covered) \(node)".utf8) }

    init?(_ bytes: [UInt8]) {
        let words = bytes.rawBytes.text.split(separator: " ", maxSplits: 4)
        guard words.count == 5, words[0] == "1", let tenure = UInt64(words[1]), let sequence = UInt64(words[2]),
            let covered = LSN(words[3])
        else { return nil }
        self.init(node: String(words[4]), tenure: tenure, sequence: sequence, covered: covered)
    }
}

extension ClusterStatus.StreamHealth {
    /// Reads the servers' answer about a stream; nil if it is a refusal or no such answer.
    init?(_ answer: [UInt8]) {
        guard let members = try? JSONValue.parse(answer, maximumDepth: 16).object,
            let state = members["state"]?.object
        else { return nil }
        func number(_ name: String) -> UInt64 { UInt64(max(0, state[name]?.integer ?? 0)) }
        (first, last, bytes) = (number("first_seq"), number("last_seq"), number("bytes"))
        let cluster = members["cluster"]?.object
        leader = cluster?["leader"]?.string.flatMap { $0.isEmpty ? nil : $0 }
        replicas = (cluster?["replicas"]?.array ?? []).compactMap { value in
            guard let replica = value.object, let name = replica["name"]?.string else { return nil }
            return Replica(
                server: name, isCurrent: replica["current"]?.bool ?? false,
                isOffline: replica["offline"]?.bool ?? false)
        }
    }
}
