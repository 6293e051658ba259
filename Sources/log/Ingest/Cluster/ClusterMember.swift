import Change
import Cluster
import Diagnostics
import EventLog
import Nats
import Postgres
import Replication
import System

/// Life of a node in a cluster: it follows the cluster's stream, and holds PostgreSQL's slot while no other node does.
/// The ingest thread runs it.
final class ClusterMember {
    private let settings: ClusterSettings
    private let replication: ReplicationSettings
    private let retention: (age: Duration?, bytes: Int64?)
    private let log: LogSink
    private let directory: any StorageDirectory
    private let spool: any StorageDirectory
    private let interrupt: Wake
    private let status: ReplicationStatus
    private let cluster: ClusterStatus
    private let names: ClusterNames
    private let bell: Wake
    private var troubles = Troubles()
    /// True if the stream's configuration was compared with the settings since the start.
    private var hasFitted = false
    private var publishedAt: UInt64 = 0

    /// Trouble that was last reported, so that a trouble that lasts is reported once.
    private struct Troubles {
        var began: UInt64 = 0
        var words = ""
        var at: UInt64 = 0
    }

    init(
        _ settings: ClusterSettings, _ replication: ReplicationSettings, retention: (age: Duration?, bytes: Int64?),
        log: LogSink, directory: any StorageDirectory, spool: any StorageDirectory, interrupt: Wake, bell: Wake,
        status: ReplicationStatus, cluster: ClusterStatus
    ) {
        self.settings = settings
        var replication = replication
        replication.streamOptions = Self.streamOptions
        self.replication = replication
        self.retention = retention
        self.log = log
        self.directory = directory
        self.spool = spool
        self.interrupt = interrupt
        self.status = status
        self.cluster = cluster
        names = ClusterNames(key: settings.key)
        self.bell = bell
    }

    /// Settings of the connection that holds the slot. PostgreSQL frees the slot of a feeder that hangs or cannot be
    /// reached within a few seconds, so that another node can take it.
    private static let streamOptions = [
        "wal_sender_timeout=4s", "tcp_user_timeout=3000", "tcp_keepalives_idle=2", "tcp_keepalives_interval=1",
        "tcp_keepalives_count=3",
    ]

    /// Takes part until the interrupt is signalled. After a failure it connects again.
    func run() {
        var pause: UInt64 = 100
        while !interrupt.isRung {
            let began = Clock.monotonicNanoseconds()
            do {
                try takePart()
            } catch {
                status.streamingEnded()
                report(error)
                replication.metrics.clusterReconnects.add()
            }
            if Clock.monotonicNanoseconds() - began > 10_000_000_000 {
                pause = 100
                troubles = Troubles()
            }
            interrupt.sleep(milliseconds: Int(pause))
            pause = min(pause * 2, 2_000)
        }
    }

    private func report(_ error: any Error) {
        let failure = Self.failure(of: error)
        status.troubled(failure)
        let now = Clock.monotonicNanoseconds()
        let refusal = (error as? Replica.Diverged)?.kind ?? (error as? NameTaken).map { _ in .nameTaken }
        cluster.change { report in
            report.state = refusal == nil ? .connecting : .refused
            (report.refusal, report.trouble, report.feedsSince, report.server) = (refusal, failure.message, nil, "")
        }
        replication.metrics.clusterRefused.set(Int64(refusal == nil ? 0 : 1))
        tellMetrics(now)
        if troubles.began == 0 { troubles.began = now }
        // Servers that elect a leader, or several nodes that start together, are no trouble for a few seconds.
        guard now > troubles.began + 5_000_000_000,
            failure.message != troubles.words || now > troubles.at + 60_000_000_000
        else { return }
        (troubles.words, troubles.at) = (failure.message, now)
        Log.shared.error(
            "cannot follow the cluster; trying again",
            [.error(failure.message)] + (failure.hint.map { [.hint($0)] } ?? []))
    }

    private static func failure(of error: any Error) -> StreamFailure {
        switch error {
        case let failure as StreamFailure: failure
        case let name as NameTaken:
            StreamFailure(
                .cluster, "another node of the cluster has the name \(name.node) and holds the slot",
                hint: "give each node a cluster_node of its own, and start this hub again")
        case let error as NatsError:
            StreamFailure(
                .cluster, "the cluster's servers: \(error)",
                hint: "nothing is lost: the database keeps what is not confirmed")
        case let damage as StreamDamage:
            StreamFailure(
                .cluster, "the cluster's stream is damaged: \(damage)",
                hint: "the hub reads it again from another server; if that does not help, a server's file is damaged")
        case let diverged as Replica.Diverged:
            StreamFailure(
                .cluster, "this node's event log is not the cluster's: \(diverged.words)",
                hint: "run 'tidewire cluster repair' on this machine: it says what to do, and does it")
        case let stall as StorageStall:
            StreamFailure(.diskStall, "\(stall.operation) \(stall.path): \(stall.reason)", hint: stall.hint)
        default: StreamFailure(.cluster, "\(error)")
        }
    }

    // MARK: Taking part

    private func takePart() throws {
        let jet = try JetStream(settings.servers, bell: bell, maximumBytes: 64 << 20)
        let wanted = StreamConfiguration(replicas: settings.replicas, age: retention.age, bytes: retention.bytes)
        let content = try ReplicaFile(directory: directory).read()
        let opened = try ClusterStream.open(
            jet, names, wanted, mayMake: content.mayMakeStream(hasLog: !log.isNew))
        let (mark, end) = try content.place(hasLog: !log.isNew, in: opened)
        guard let stream = opened else { preconditionFailure("a log has no place in a stream that is missing") }
        if !hasFitted { stream.fit(jet, names, wanted) }
        hasFitted = true
        let link = try StreamLink(jet, names, node: settings.node, metrics: replication.metrics)
        begin(jet, stream, mark)
        let replica = Replica(
            log: log, from: mark, at: end,
            tenure: Tenure(node: settings.node, number: mark.tenure, now: Clock.monotonicNanoseconds()),
            directory: directory, coverage: replication.coverage, messages: replication.messages)
        try replica.removeUnfinished()
        Log.shared.info(
            "follows the cluster's stream",
            [.stream(names.stream), .host(jet.connection.server), .message(replica.reader.mark.sequence)])
        defer { try? replica.keep() }
        while !interrupt.isRung {
            guard let tenure = try follow(replica, link, stream) else { return }
            try hold(replica, link, tenure)
        }
    }

    /// Publishes that the node begins to read the stream.
    private func begin(_ jet: JetStream, _ stream: ClusterStream, _ mark: StreamMark) {
        let now = Clock.monotonicNanoseconds()
        let server = jet.connection.server
        cluster.change { report in
            (report.state, report.refusal, report.trouble, report.server) = (.following, nil, nil, server)
            (report.sequence, report.last) = (mark.sequence, max(stream.last, mark.sequence))
            (report.tenure, report.feeder) = (mark.tenure, nil)
            report.beganAt = now
        }
        replication.metrics.clusterRefused.set(Int64(0))
    }

    /// Publishes how far the node's log has come, and who feeds the stream.
    private func publish(_ replica: Replica, _ link: StreamLink, isFeeding: Bool, _ now: UInt64) {
        guard now > publishedAt + Self.publishInterval || publishedAt == 0 else { return }
        publishedAt = now
        let sequence = replica.reader.mark.sequence
        let feeder = replica.tenure.feeder
        let health = link.health
        cluster.change { report in
            report.state = isFeeding ? .feeding : .following
            report.sequence = sequence
            report.last = max(report.last, sequence, link.known, health?.last ?? 0)
            report.tenure = max(report.tenure, feeder?.number ?? 0)
            report.feeder = feeder.flatMap { $0.node.isEmpty ? link.feeder(of: $0.number) : $0.node }
            report.stream = health ?? report.stream
            if isFeeding || report.missing == 0 { report.caughtUpAt = now }
            if !isFeeding { report.feedsSince = nil }
        }
        tellMetrics(now)
    }

    private func tellMetrics(_ now: UInt64) {
        let (report, metrics) = (cluster.report, replication.metrics)
        metrics.clusterFeeding.set(Int64(report.state == .feeding ? 1 : 0))
        metrics.clusterTenure.set(Int64(clamping: report.tenure))
        metrics.clusterLagMessages.set(Int64(clamping: report.missing))
        metrics.clusterLagSeconds.set(Int64(report.lag(at: now) / 1_000_000_000))
    }

    /// Interval at which the state is published.
    private static let publishInterval: UInt64 = 50_000_000

    /// Error of a node whose name another node has.
    private struct NameTaken: Error {
        var node: String
    }

    // MARK: Following

    /// Follows the stream until this node holds the slot. Returns the tenure's number; nil after an interrupt.
    private func follow(_ replica: Replica, _ link: StreamLink, _ stream: ClusterStream) throws -> UInt64? {
        var stream = stream
        var consumer = try StreamConsumer(link.jet, stream: names.stream, from: replica.reader.next)
        defer { consumer.end() }
        let delay = UInt64.random(in: 0..<300_000_000)
        var covering: (pulse: NodePulse, epoch: UInt64?)?
        while !interrupt.isRung {
            try consumer.ask()
            let (letters, dropped) = link.jet.take()
            let now = Clock.monotonicNanoseconds()
            for letter in letters { try take(letter, consumer, replica, link, now) }
            try replica.apply(now: now)
            try replica.flush(now: now)
            if let pulse = link.takeHeard() {
                replica.tenure.heard(pulse.tenure, now: now)
                covering = (pulse, replica.log.appended?.epoch)
                if pulse.node == settings.node { throw NameTaken(node: settings.node) }
                if pulse.sequence == replica.reader.mark.sequence { try replica.checkEnd() }
            }
            tell(replica, covering, now)
            link.askForHealth(now: now)
            publish(replica, link, isFeeding: false, now)
            if dropped > 0 || consumer.isLost(at: now) {
                consumer.end()
                consumer = try StreamConsumer(link.jet, stream: names.stream, from: replica.reader.next)
            }
            if replica.tenure.isDue(at: now, delay: delay), let tenure = try stand(replica, link, &stream) {
                return tenure
            }
            _ = Poll.wait(socket: bell.descriptor, interrupt: interrupt, timeoutMilliseconds: 100)
        }
        return nil
    }

    private func take(
        _ letter: NatsLetter, _ consumer: StreamConsumer, _ replica: Replica, _ link: StreamLink, _ now: UInt64
    ) throws {
        if let place = consumer.take(letter, now: now) {
            try replica.take(place.sequence, letter.payload)
        } else {
            link.take(letter)
        }
    }

    /// Publishes whether the log is followed, and which commits it has.
    private func tell(_ replica: Replica, _ covering: (pulse: NodePulse, epoch: UInt64?)?, _ now: UInt64) {
        let isFollowing = !replica.log.isNew && replica.tenure.isFed(at: now)
        if isFollowing != status.isStreaming {
            if isFollowing { status.streamingBegan() } else { status.streamingEnded() }
            replication.metrics.replicationConnected.set(Int64(isFollowing ? 1 : 0))
        }
        if !isFollowing {
            status.troubled(StreamFailure(.cluster, "no node of the cluster holds the replication slot now"))
        }
        guard !replica.log.isNew else { return }
        var covered = replica.log.durablePosition
        // Positions of another epoch cannot be compared.
        if let covering, covering.epoch == replica.log.appended?.epoch,
            covering.pulse.sequence <= replica.reader.mark.sequence
        {
            covered = max(covered, covering.pulse.covered)
        }
        status.covers(covered)
        status.follows(
            FollowedDatabase(system: replica.log.systemIdentifier, number: replica.log.lineage?.database ?? 0))
    }

    // MARK: Holding the slot

    /// Tries to begin a tenure: if PostgreSQL can be reached, appends it behind everything that was read. Returns its
    /// number; nil if this node is not up to date, or another node was faster.
    private func stand(
        _ replica: Replica, _ link: StreamLink, _ stream: inout ClusterStream
    ) throws -> UInt64? {
        try stream.look(link.jet, names)
        let mark = replica.reader.mark
        guard mark.sequence == stream.last, !replica.reader.isInsideBatch || replica.tenure.feeder != nil else {
            return nil
        }
        try replica.checkEnd()
        let now = Clock.monotonicNanoseconds()
        guard reachesDatabase() else {
            replica.tenure.rest(until: now + 1_000_000_000)
            return nil
        }
        let number = mark.sequence + 1
        var batch = BatchBuilder()
        batch.add(tenureOf: settings.node, replica.state)
        guard try replica.append(batch, by: link, tenure: number) else { return nil }
        Log.shared.info("holds the replication slot for the cluster", [.tenure(number)])
        return number
    }

    private func reachesDatabase() -> Bool {
        do throws(PostgresError) {
            _ = try Connection(
                replication.target, applicationName: "tidewire catalog", timeoutSeconds: 2, interrupt: interrupt)
            return true
        } catch {
            status.troubled(StreamFailure(connecting: error))
            return false
        }
    }

    /// Feeds the stream from PostgreSQL until the tenure ends.
    private func hold(_ replica: Replica, _ link: StreamLink, _ tenure: UInt64) throws {
        status.streamingEnded()
        replica.isFeeding = true
        link.isReading = false
        replication.coverage.takeOver()
        replication.messages.takeOver()
        let since = Clock.unixMicroseconds() / 1_000_000
        cluster.change { $0.feedsSince = since }
        defer {
            replica.isFeeding = false
            link.isReading = true
            status.streamingEnded()
        }
        let sink = StreamSink(
            replica, link, tenure: tenure, pause: replication.pause,
            isGivenUp: { [cluster] in cluster.isHandoverWanted },
            watch: { [unowned self, unowned replica, unowned link] now in
                link.askForHealth(now: now)
                publish(replica, link, isFeeding: true, now)
            })
        Replicator(
            settings: replication, spoolDirectory: spool, sink: sink, interrupt: interrupt, status: status
        ).run()
        replica.isFeeding = false
        let isUnknown = link.isWaiting
        link.giveUp()
        if let loss = sink.loss ?? (isUnknown ? "the stream had not acknowledged when the hub ended" : nil) {
            Log.shared.warning("holds the replication slot no longer", [.tenure(tenure), .reason(loss)])
        } else {
            try resign(replica, link, tenure)
        }
        // A node that could not stream lets others try first.
        let now = Clock.monotonicNanoseconds()
        let isHandedOver = cluster.isHandoverWanted
        cluster.handoverIsDone()
        replica.tenure.rest(
            until: now + (isHandedOver ? Self.handoverRest : sink.hasStreamed ? 1_000_000_000 : 5_000_000_000))
        publishedAt = 0
        publish(replica, link, isFeeding: false, now)
        let followed = replication.coverage.followed
        try replication.coverage.adopt(followed)
    }

    /// Time for which a node that handed the slot over leaves it to others.
    private static let handoverRest: UInt64 = 10_000_000_000

    /// Gives the slot up, so that another node takes it at once.
    private func resign(_ replica: Replica, _ link: StreamLink, _ tenure: UInt64) throws {
        var batch = BatchBuilder()
        batch.addResigned()
        if try replica.append(batch, by: link, tenure: tenure) {
            Log.shared.info("gave up the replication slot", [.tenure(tenure)])
        }
        try replica.flush(now: Clock.monotonicNanoseconds())
    }
}
