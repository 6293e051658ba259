import Bytes
import Channels
import Delivery
import Diagnostics
import Nats
import Synchronization
import System

/// News from other nodes of the cluster for the loops of this one.
public enum PeerNews: Sendable {
    case broadcasts(TurnBroadcasts)
    /// Broadcasts of another node were lost.
    case broadcastsLost
    case presence([PresenceChange])
}

/// Exchange of broadcasts and presence between the nodes of a cluster, for one project.
///
/// Loops hand over what they have said in a turn; a thread of its own sends it to the other nodes, and passes on what
/// they have said. Letters can be lost, because the servers do not keep them: a receiver notices that by their numbers,
/// tells its clients that broadcasts are missing, and asks for the node's presences again.
public final class PeerTalk: Sendable {
    private struct Outgoing {
        var letters: [[UInt8]] = []
        var bytes = 0
        var numbers = PeerNumbers()
        /// Numbers of the last letters that were handed to the connection.
        var sent = PeerNumbers()
        /// Presences of this node's own channels.
        var present: [PresenceTracker: PresenceChange] = [:]
    }

    private let outgoing = Mutex(Outgoing())
    private let settings: NatsSettings
    private let subject: String
    /// Number of this node, new with each start.
    private let node = UInt64.random(in: 1 ... .max)
    /// Number of this node's name.
    private let home: UInt64
    /// Beats when there is something to send or to hear, or the exchange is to end. Loops have descriptor tables of their
    /// own, so they could not ring a bell of this thread.
    private let pulse = Pulse()
    private let isOver = Atomic<Bool>(false)
    private let thread = Mutex<BackgroundThread?>(nil)
    private let metrics: ProjectMetrics
    /// Returns what this node tells the others about itself; nil if nothing is known.
    private let status: @Sendable () -> PeerStatus?
    private let register = Mutex(PeerRegister(most: Limits.maximumRememberedPeers))
    private let records = Mutex<PeerRecords?>(nil)
    /// True once the other nodes that are heard have told of their clients.
    private let isIntroduced = Atomic<Bool>(false)

    /// Maximum number of bytes that wait to be sent; what comes on top is lost, and the other nodes notice it.
    private static let maximumBytes = 16 << 20
    /// Maximum number of nodes; each gets 256 numbers for its loops.
    static let maximumNodes = 255
    private static let loopsOfNode: UInt16 = 256

    /// - Parameters:
    ///   - name: name of this node.
    ///   - project: name of the project in subjects.
    ///   - status: returns what this node tells the others about itself with each sign of life.
    public init(
        _ settings: NatsSettings, name: String, project: String, metrics: ProjectMetrics,
        status: @escaping @Sendable () -> PeerStatus? = { nil }
    ) {
        self.status = status
        var hash = KeyHash(seed: 1)
        hash.combine(Array(name.utf8).rawBytes)
        home = hash.value
        self.settings = settings
        subject = "tw.talk.\(project)"
        self.metrics = metrics
    }

    /// Starts the exchange. `deliver` is called on the thread of the exchange.
    ///
    /// - Parameter records: records of clients that are exchanged; nil if none are kept.
    public func start(
        _ records: PeerRecords?, _ deliver: @escaping @Sendable (PeerNews) -> Void
    ) throws(SystemError) {
        self.records.withLock { $0 = records }
        let started = try BackgroundThread("peers", LogScope.carried { self.run(deliver) })
        thread.withLock { $0 = started }
    }

    /// Other nodes of the cluster, sorted by name, with what each told last and the nanoseconds since then.
    public func members(at now: UInt64) -> [(status: PeerStatus, silence: UInt64)] {
        register.withLock { register in
            register.known.values.sorted { $0.status.node < $1.status.node }.map {
                ($0.status, now - min(now, $0.heardAt))
            }
        }
    }

    /// Time without a sign of life after which a node counts as gone.
    public static let patience: UInt64 = 8_000_000_000
    /// Time within which each running node gives a sign of life, with room for a busy machine.
    private static let introduction: UInt64 = 1_500_000_000

    /// Waits until the other nodes have told of their clients, so that this one recognizes those that come from them.
    /// Returns false if that takes too long, for example because the servers do not answer.
    public func waitForIntroduction(nanoseconds: UInt64 = 10_000_000_000) -> Bool {
        let deadline = Clock.monotonicNanoseconds() + nanoseconds
        while !isIntroduced.load(ordering: .acquiring) {
            if isOver.load(ordering: .acquiring) || Clock.monotonicNanoseconds() >= deadline { return false }
            BackgroundThread.rest(nanoseconds: 10_000_000)
        }
        return true
    }

    public func stop() {
        isOver.store(true, ordering: .releasing)
        pulse.beat()
        thread.withLock { $0.take() }?.join()
    }

    // MARK: From the loops

    /// Sends the broadcasts of a loop's turn to the other nodes.
    public func send(_ batch: TurnBroadcasts) {
        outgoing.withLock { out in
            out.numbers.broadcasts += 1
            add(.broadcasts, out.numbers.broadcasts, &out) { batch.append(to: &$0) }
        }
        pulse.beat()
    }

    /// Sends the presence changes of a loop's turn to the other nodes.
    public func send(_ changes: [PresenceChange]) {
        outgoing.withLock { out in
            out.numbers.presence += 1
            for change in changes { out.present[change.tracker] = change.joined == nil ? nil : change }
            add(.presence, out.numbers.presence, &out) { PresenceChange.append(changes, to: &$0) }
        }
        pulse.beat()
    }

    private func add(
        _ kind: PeerLetter.Kind, _ number: UInt64, _ out: inout Outgoing, _ body: (inout ByteWriter) -> Void
    ) {
        let bytes = PeerLetter.write(kind, from: node, number: number, body)
        guard out.bytes + bytes.count <= Self.maximumBytes else {
            metrics.drops[.backlog].add()
            return
        }
        out.bytes += bytes.count
        out.letters.append(bytes)
    }

    // MARK: The thread

    private func run(_ deliver: @Sendable (PeerNews) -> Void) {
        var peers = HeardNodes()
        var pause: UInt64 = 100
        while !isOver.load(ordering: .acquiring) {
            do throws(NatsError) {
                try exchange(&peers, deliver)
                pause = 100
            } catch {
                // The ingest thread reports that the servers cannot be reached.
                Log.shared.debug("cannot exchange broadcasts with other nodes; trying again", [.error("\(error)")])
            }
            peers.forgetSilent(at: Clock.monotonicNanoseconds(), records.withLock { $0 }, deliver)
            metrics.clusterPeers.set(Int64(peers.count))
            wait(beyond: pulse.value, milliseconds: pause)
            pause = min(pause * 2, 2_000)
        }
    }

    private func exchange(_ peers: inout HeardNodes, _ deliver: @Sendable (PeerNews) -> Void) throws(NatsError) {
        let pulse = pulse
        let connection = try NatsConnection(settings) { pulse.beat() }
        let inbox = NatsInbox(maximumBytes: 64 << 20) { pulse.beat() }
        let subscription = try connection.subscribe(subject, to: inbox)
        defer { withExtendedLifetime(subscription) {} }
        let begun = Clock.monotonicNanoseconds()
        var saidAt: UInt64 = 0
        while !isOver.load(ordering: .acquiring) {
            // The pulse is read before the letters, so that one that arrives in between ends the wait.
            let seen = pulse.value
            let (letters, dropped) = inbox.take()
            let now = Clock.monotonicNanoseconds()
            for letter in letters { try hear(letter.payload, &peers, connection, now, deliver) }
            // What was dropped here is missed by its number.
            if dropped > 0 { metrics.drops[.backlog].add(dropped) }
            try sendWaiting(connection)
            try shareRecords(connection, all: false)
            if now >= saidAt + 1_000_000_000 {
                saidAt = now
                try say(connection)
            }
            peers.forgetSilent(at: now, records.withLock { $0 }, deliver)
            metrics.clusterPeers.set(Int64(peers.count))
            if now >= begun + Self.introduction, peers.haveToldOfClients {
                isIntroduced.store(true, ordering: .releasing)
            }
            wait(beyond: seen, milliseconds: 100)
        }
        // Clients that leave a hub which stops find their positions at the other nodes.
        try? shareRecords(connection, all: false)
        try? sendWaiting(connection)
        connection.flush()
    }

    /// Sends the records of this node's clients, and whom it took over from other nodes.
    private func shareRecords(_ connection: NatsConnection, all: Bool) throws(NatsError) {
        guard let records = records.withLock({ $0 }) else { return }
        for content in records.changes(all) {
            let number = outgoing.withLock { out in
                out.numbers.records += 1
                out.sent.records = out.numbers.records
                return out.numbers.records
            }
            let letter = PeerLetter.write(.records, from: node, number: number) { writer in
                writer.append(little: home)
                writer.append(content)
            }
            try connection.publish(letter.rawBytes, to: subject)
        }
        for claim in records.takeClaims() {
            let letter = PeerLetter.write(.claim, from: node, number: claim.home) { writer in
                claim.entry.append(to: &writer)
            }
            try connection.publish(letter.rawBytes, to: subject)
        }
    }

    private func wait(beyond seen: UInt64, milliseconds: UInt64) {
        _ = pulse.wait(beyond: seen, untilMonotonic: Clock.monotonicNanoseconds() + milliseconds * 1_000_000)
    }

    private func sendWaiting(_ connection: NatsConnection) throws(NatsError) {
        let letters = outgoing.withLock { out in
            defer {
                out.letters = []
                out.bytes = 0
                out.sent = out.numbers
            }
            return out.letters
        }
        for letter in letters { try post(letter, connection) }
    }

    private func post(_ letter: [UInt8], _ connection: NatsConnection) throws(NatsError) {
        for part in PeerLetter.sendable(letter, from: node) {
            try connection.publish(part.rawBytes, to: subject)
        }
    }

    private func say(_ connection: NatsConnection) throws(NatsError) {
        // A letter that still waits is not missing.
        let numbers = outgoing.withLock { $0.sent }
        let letter = PeerLetter.write(.pulse, from: node, number: 0) { writer in
            writer.append(little: numbers.broadcasts)
            writer.append(little: numbers.presence)
            writer.append(little: numbers.records)
            if let status = status() { writer.append(status.encoded) }
        }
        try connection.publish(letter.rawBytes, to: subject)
    }

    private func hear(
        _ bytes: [UInt8], _ peers: inout HeardNodes, _ connection: NatsConnection, _ now: UInt64,
        _ deliver: @Sendable (PeerNews) -> Void
    ) throws(NatsError) {
        guard let head = PeerLetter.head(bytes) else { return }
        switch head.kind {
        case .wish:
            if head.number == node { try answer(connection) }
            return
        case .claim:
            hear(claimOn: head.number, bytes)
            return
        case .slice:
            guard head.node != node, let letter = peers.join(bytes, of: head.node, now) else { return }
            return try hear(letter, &peers, connection, now, deliver)
        case .broadcasts, .presence, .pulse, .presences, .records: break
        }
        guard head.node != node else { return }
        if head.kind == .pulse, let status = PeerLetter.status(bytes) {
            register.withLock { $0.heard(status, at: now) }
        }
        let wish = peers.take(head, bytes, now, records.withLock { $0 }, metrics, deliver)
        guard wish else { return }
        let letter = PeerLetter.write(.wish, from: node, number: head.node) { _ in }
        try connection.publish(letter.rawBytes, to: subject)
    }

    private func hear(claimOn home: UInt64, _ bytes: [UInt8]) {
        var reader = ByteReader(bytes.rawBytes)
        guard (try? reader.skip(PeerLetter.headBytes)) != nil, let entry = try? ClaimedEntry(&reader),
            let records = records.withLock({ $0 })
        else { return }
        let claim = PeerRecords.Claim(home: home, entry: entry)
        if home == self.home { records.claimed(claim) } else { records.overheard(claim) }
    }

    /// Sends all presences and records of this node.
    private func answer(_ connection: NatsConnection) throws(NatsError) {
        // Letters with later numbers follow, so those that wait are sent before.
        try sendWaiting(connection)
        let (number, present) = outgoing.withLock { ($0.numbers.presence, Array($0.present.values)) }
        let portions = max(1, (present.count + Self.portion - 1) / Self.portion)
        for part in 0..<portions {
            let changes = Array(present[min(part * Self.portion, present.count)...].prefix(Self.portion))
            let letter = PeerLetter.write(.presences, from: node, number: number) { writer in
                writer.append(little: UInt32(part))
                writer.append(little: UInt32(portions))
                PresenceChange.append(changes, to: &writer)
            }
            try post(letter, connection)
        }
        try shareRecords(connection, all: true)
    }

    /// Number of presences in a part of an answer.
    private static let portion = 100
}

/// Other nodes of the cluster that are heard, as their letters tell.
struct HeardNodes {
    private struct Peer {
        var presence: PeerPresence
        /// Number of the last letter of broadcasts; nil before the first letter.
        var broadcasts: UInt64?
        /// Number of the last letter of records that was taken; nil before the first one with all of them.
        var records: UInt64?
        /// Number of the last letter of records that the node has sent, by its last sign of life that was heard. Zero if
        /// this node keeps no records.
        var sentRecords: UInt64?
        var heardAt: UInt64

        var hasToldOfClients: Bool { sentRecords.map { $0 <= records ?? 0 } ?? false }
        var wishedAt: UInt64 = 0
        var sliced = SlicedLetter()
    }

    private var peers: [UInt64: Peer] = [:]
    /// Numbers by which nodes are told apart, those in use.
    private var numbers: Set<UInt16> = []
    /// Numbers of the last letters of broadcasts of nodes that fell silent. If a node is heard again, what it has said
    /// meanwhile is missing.
    private var silent: [UInt64: UInt64] = [:]
    /// True if a node that fell silent may not be in `silent`.
    private var hasForgottenSilent = false
    private static let maximumSilent = 1_024

    var count: Int { peers.count }

    /// True if all nodes that are heard have told of their clients.
    var haveToldOfClients: Bool { peers.values.allSatisfy(\.hasToldOfClients) }

    /// Takes a letter of another node. Returns true if the node must be asked for its presences.
    mutating func take(
        _ head: (kind: PeerLetter.Kind, node: UInt64, number: UInt64), _ bytes: [UInt8], _ now: UInt64,
        _ records: PeerRecords?, _ metrics: ProjectMetrics, _ deliver: (PeerNews) -> Void
    ) -> Bool {
        guard var peer = peers[head.node] ?? newPeer(head.node, now) else { return false }
        if peers[head.node] == nil, peer.broadcasts == nil, hasForgottenSilent { deliver(.broadcastsLost) }
        peer.heardAt = now
        var reader = ByteReader(bytes.rawBytes)
        guard (try? reader.skip(PeerLetter.headBytes)) != nil else { return false }
        var isMissing = false
        switch head.kind {
        case .broadcasts:
            if let last = peer.broadcasts, head.number > last + 1 {
                metrics.clusterLettersLost.add(head.number - last - 1)
                deliver(.broadcastsLost)
            }
            peer.broadcasts = max(peer.broadcasts ?? 0, head.number)
            if let batch = TurnBroadcasts(&reader) { deliver(.broadcasts(batch)) }
        case .presence:
            guard let changes = PresenceChange.list(&reader) else { break }
            if let news = peer.presence.apply(changes, number: head.number) {
                if !news.isEmpty { deliver(.presence(news)) }
            } else {
                isMissing = true
            }
        case .presences:
            guard let part = try? reader.littleUInt32(), let count = try? reader.littleUInt32(),
                let changes = PresenceChange.list(&reader)
            else { break }
            let news = peer.presence.replace(changes, part: Int(part), of: Int(count), number: head.number)
            if !news.isEmpty { deliver(.presence(news)) }
        case .pulse:
            guard let broadcasts = try? reader.littleUInt64(), let presence = try? reader.littleUInt64() else { break }
            if let last = peer.broadcasts, broadcasts > last {
                metrics.clusterLettersLost.add(broadcasts - last)
                deliver(.broadcastsLost)
            }
            peer.broadcasts = max(peer.broadcasts ?? 0, broadcasts)
            isMissing = peer.presence.isMissing(upTo: presence)
            let sent = try? reader.littleUInt64()
            peer.sentRecords = records == nil ? 0 : sent ?? 0
            isMissing = isMissing || !peer.hasToldOfClients
        case .records:
            guard let home = try? reader.littleUInt64() else { break }
            let content = reader.rest().copied()
            let isWhole = content.first.map { $0 & 1 != 0 } ?? false
            if isWhole || peer.records.map({ head.number == $0 + 1 }) ?? false {
                if records?.learn(head.node, home, content) == true { peer.records = head.number }
            } else if head.number > peer.records ?? 0 {
                isMissing = true
            }
        case .wish, .claim, .slice: break
        }
        let mayWish = isMissing && now >= peer.wishedAt + 500_000_000
        if mayWish { peer.wishedAt = now }
        peers[head.node] = peer
        return mayWish
    }

    /// Takes a slice of a node's letter. Returns the letter if it is whole.
    mutating func join(_ slice: [UInt8], of node: UInt64, _ now: UInt64) -> [UInt8]? {
        guard var peer = peers[node] ?? newPeer(node, now) else { return nil }
        defer { peers[node] = peer }
        return peer.sliced.take(slice)
    }

    private mutating func newPeer(_ node: UInt64, _ now: UInt64) -> Peer? {
        guard let number = (1...UInt16(PeerTalk.maximumNodes)).first(where: { !numbers.contains($0) }) else {
            return nil
        }
        numbers.insert(number)
        return Peer(
            presence: PeerPresence(base: number * 256), broadcasts: silent.removeValue(forKey: node), heardAt: now)
    }

    /// Makes the members of nodes leave that have been silent for too long.
    mutating func forgetSilent(at now: UInt64, _ records: PeerRecords?, _ deliver: (PeerNews) -> Void) {
        for (node, peer) in peers where now > peer.heardAt + PeerTalk.patience {
            var peer = peer
            let left = peer.presence.leave()
            if !left.isEmpty { deliver(.presence(left)) }
            records?.lose(node)
            if silent.count >= Self.maximumSilent { (silent, hasForgottenSilent) = ([:], true) }
            silent[node] = peer.broadcasts
            numbers.remove(peer.presence.base / 256)
            peers[node] = nil
        }
    }
}
