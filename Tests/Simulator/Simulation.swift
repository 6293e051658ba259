import Auth
import Change
import Channels
import Delivery
import Diagnostics
import EventLog
import Gateway
import Glibc
import Net
import Settings
import Synchronization
import System
import TestSupport

/// Simulation of a hub on one thread, with a virtual clock and without a kernel or a database.
///
/// The stream's messages pass through the real assembler into the real log, on a failing disk in memory. The real loops
/// deliver to clients over socket pairs. A model answers the questions for PostgreSQL, late or not at all. The received
/// events are compared with the expected ones.
public final class Simulation {
    static let loopCount = 2
    static let channelsPerClient = 3
    /// Limit on additional waits of five seconds each, while events still arrive.
    private static let mostPatience = 60

    public struct Report {
        public var complaints: [String] = []
        public var deliveries = 0
        /// Received messages of the database to topics.
        public var said = 0
        public var joins = 0
        /// Joins that resumed from their position.
        public var resumed = 0
        /// Joins that asked to resume and could not.
        public var refetched = 0
        public var returned = 0
        public var rejoined = 0
        /// Number of times that a channel of a slow client stopped and later continued from the log.
        public var parked = 0
        /// Number of segments that a reader skipped.
        public var passedOver = 0
        /// Segments that the log removed at a moment chosen by the script.
        public var letGo = 0
        /// Number of notices to clients that changes may be missing.
        public var told = 0
        /// Channels that lost changes in a gap and received a notice about it.
        public var toldOfGaps = 0
        /// Number of missing changes that a notice excuses.
        public var excused = 0
        public var faults = 0
        public var commits = 0
        public var changes = 0
        public var bytesHeard = 0
        public var milliseconds: UInt64 = 0
        public var coverage: [String: Int] = [:]
        /// Hash of all received events, to compare two runs.
        public var fingerprint: UInt64 = 0
    }

    private let time = VirtualTime()
    private let agenda: Agenda
    private let database = ModelDatabase()
    private let storage = FaultyStorage()
    /// Directory for the clients' positions. Its operations never fail.
    private var notes = MemoryDirectory()
    private var departures: ResumeStore?
    private let server: ModelServer
    private let stream: ModelStream
    private let oracle: Oracle
    private let shape: Shape
    private let wire = Wire()
    private var clients: [Client] = []
    /// Epoll set that reports the clients with data to read.
    private let readable: Epoll
    /// Disconnected clients for which no time of return is set yet.
    private var lost: Set<Int> = []
    /// Clients that do not read for now, although data may have arrived.
    private var frozen: Set<Int> = []
    /// Clients with output that they have not written yet.
    private var unsaid: Set<Int> = []
    private var hub: Hub?
    private var random: SeededRandom
    private var frozenLoops: [Int: UInt64] = [:]
    private var streamFrozenUntil: UInt64 = 0
    private var readsFailUntil: UInt64 = 0
    private let damage = Damage()

    /// Flipped bits in segments.
    private final class Damage {
        var bits: [(until: UInt64, bit: Int, name: String)] = []
        /// Virtual time at which the damage last existed. The hub may report the damage to a client later.
        var lastSeen: UInt64?
    }
    private var faults = 0
    private var losses: [String: Int] = [:]
    private var nextBeat: UInt64 = 0
    private let coverage = Coverage()
    /// Metrics of all hubs of the run together.
    private let metrics = ProjectMetrics()
    private(set) var stepsDone = 0

    /// End of the log when the running hub was started.
    private final class Beginning {
        var place: LogPlace?
    }

    private let hubBegan = Beginning()

    /// Number of times that each loop came to rest, with no work left.
    private final class Rests {
        var counts = [Int](repeating: 0, count: Simulation.loopCount)
    }

    private let rests = Rests()

    private struct Hub {
        let gateway: SteppedGateway
        let catalog: ModelCatalog
    }

    public init(seed: UInt64, _ shape: Shape? = nil) throws {
        let shape = shape ?? .usual(seed: seed)
        self.shape = shape
        random = SeededRandom(seed: seed &* 0x9e37_79b9)
        witness = LedgerWitness(
            recordsEach: seed % 3 == 1, scarcity: seed % 4 == 1 ? SeededRandom(seed: seed &* 0x51ed_270b) : nil)
        readable = try Epoll()
        agenda = Agenda(time)
        server = ModelServer(database, time, agenda, seed: seed, isSluggish: shape.isSluggish)
        stream = ModelStream(
            database, storage, time, segmentBytes: shape.segmentBytes, isSilent: shape.isSilent,
            slowness: shape.isSlowToBegin ? SeededRandom(seed: seed) : nil)
        let stream = stream
        let (hubBegan, rests) = (hubBegan, rests)
        oracle = Oracle(
            database, now: { [time] in time.monotonicNanoseconds() }, rests: { rests.counts.min() ?? 0 }
        ) {
            Oracle.Position(
                durable: stream.durable, oldestKept: stream.oldestKept, oldestOffset: stream.oldestOffset,
                end: stream.place, start: hubBegan.place)
        }
        stream.hasGap = { [oracle] in oracle.hasGap($0) }
        oracle.mayBeUnreadable = { [damage, time] in
            damage.lastSeen.map { time.monotonicNanoseconds() < $0 + 10_000_000_000 } ?? false
        }
        oracle.isInLedger = { [witness] topic, offset in
            witness.hears(topic, offset)
            return witness.has(topic, offset)
        }
        oracle.reads = { [witness] in witness.reads($0, $1, at: $2) }
        for number in 0..<shape.clients {
            let person = ModelDatabase.people[number % ModelDatabase.people.count]
            clients.append(Client(number, person: person, seed: seed, wire, oracle))
        }
        try startHub()
        for number in clients.indices { connect(number) }
    }

    // MARK: The hub

    private func startHub() throws {
        try stream.start()
        hubBegan.place = stream.place
        var sockets = SocketSettings(host: "simulated", port: 0, loopCount: Self.loopCount)
        sockets.backend = .epoll
        sockets.time = time
        // The buffers are small, so that a client that pauses for a moment becomes slow. A crowd has large buffers,
        // because it receives transactions of hundreds of rows.
        let isTight = !shape.hasCrowd && !shape.isRoomy
        sockets.sendBuffer = isTight ? 4 << 10 : 64 << 10
        sockets.outboxBytes = isTight ? 16 << 10 : 256 << 10
        let gateway = try SteppedGateway(GatewaySettings(sockets: sockets), ProcessMetrics())
        let catalog = ModelCatalog(server, unannounced: shape.isSilent ? [ModelTable.notes.rawValue] : [])
        let asking = DeliveryAsking(
            catalog: catalog, filterEvaluator: ModelFilterEvaluator(), policyEvaluator: ModelPolicyEvaluator(server),
            recall: ModelRecall(server, storage))
        var settings = ProjectSettings(
            limits: ProjectLimits(
                maximumChannelsPerClient: 100, clientPresenceWindow: .seconds(1), maximumPayloadBytes: 100_000,
                isPrivateOnly: false, presenceEnabled: false, isSuspended: false))
        settings.time = time
        settings.watcher = coverage.watcher
        let departures = try ResumeStore(
            loops: Self.loopCount, scope: .sessions, grace: .seconds(120), in: notes, time: time,
            maximum: shape.departures, secret: .init(first: 1, second: 2))
        settings.resumeStore = departures
        self.departures = departures
        let shared = SharedStream(stream)
        let log = LogSource(
            open: { [storage] () throws(SystemError) in storage }, end: { shared.stream.end },
            covered: { shared.stream.covered })
        let archive = ModelArchive(server, storage) { shared.stream.end }
        let witness = SharedWitness(witness)
        let ledger = ChannelLedger(witness.witness.recordsEach ? .full : .ranges, claims: ["sub"]) { note in
            witness.witness.take(note, at: shared.stream.place?.offset ?? 0)
        }
        let follower = ProjectStream(log: log, hearsDatabase: { true }, presenceTimeline: nil, ledger: ledger) {
            ProjectHealthReport(isStreaming: true, isLogWritable: true, isCatalogKnown: $0, clients: 0, trouble: nil)
        }
        let project = Project(
            "simulated", settings,
            ProjectShare(number: 0, loops: Self.loopCount, gateway.budgets(), metrics),
            ProjectServices(asking, authorizer: NoAuthorizer(), archive: archive),
            TokenVerifier(secret: Client.secret, maximumBytes: 4096), follower)
        gateway.add(project)
        hub = Hub(gateway: gateway, catalog: catalog)
    }

    /// Check of the ledger that the hub writes about its channels.
    private let witness: LedgerWitness

    private struct SharedWitness: @unchecked Sendable {
        let witness: LedgerWitness
        init(_ witness: LedgerWitness) { self.witness = witness }
    }

    /// Wrapper for an object that only one thread uses, for closures that the compiler assumes any thread could call.
    private struct SharedStream: @unchecked Sendable {
        let stream: ModelStream
        init(_ stream: ModelStream) { self.stream = stream }
    }

    /// Applies a loss to the history that the hub follows.
    private func lose(_ loss: ForcedLoss) {
        losses["\(loss)", default: 0] += 1
        guard !loss.endsProcess else { return crash(power: false, loss) }
        if loss.isOfPublication {
            database.isPublished = false
            for _ in 0..<2 { write(random.next()) }
            database.isPublished = true
        }
        stream.lose(loss)
    }

    private func damage(by loss: ForcedLoss) {
        switch loss {
        case .lineageDamaged: storage.flipBit(3, in: "lineage")
        case .directoryLost:
            storage.deleteAll()
            notes = MemoryDirectory()
        case .logLost: storage.deleteAll()
        default: preconditionFailure("what comes to pass while the process runs damages nothing")
        }
    }

    /// Ends the hub's process and starts another one a moment later.
    private func crash(power: Bool, _ loss: ForcedLoss? = nil) {
        hub?.catalog.stop()
        agenda.removeAll()
        stream.die()
        hub?.gateway.stop()
        hub = nil
        restore(until: .max)
        if power { storage.powerCut(&random) } else { storage.processDied() }
        storage.setFaults { _ in }
        for client in clients { cut(client) }
        closeVanished(until: .max)
        if let loss { damage(by: loss) }
        witness.hubDied(at: time.unixMicroseconds(), place: stream.place?.offset ?? 0)
        oracle.hubEnded(power: power, hasForgotten: loss == .directoryLost)
        frozenLoops = [:]
        // Chance decides if the clients or the database return first.
        if UInt64.random(in: 0..<2, using: &random) == 0 { server.beAway(milliseconds: 7_000) }
        do {
            try startHub()
        } catch {
            preconditionFailure("the hub does not start again: \(error)")
        }
    }

    // MARK: Clients

    private func connect(_ number: Int) {
        guard let hub, !clients[number].isConnected else { return }
        do {
            let (ours, theirs) = try StreamSocket.pair()
            hub.gateway.connected(
                theirs, from: .anyIPv4(port: 0), to: Int.random(in: 0..<Self.loopCount, using: &random))
            try readable.add(ours, .readable, key: UInt64(number))
            lost.remove(number)
            // Most clients return as the same person.
            let isAnother = clients[number].seats.isEmpty || random.next() % 3 == 0
            clients[number].connect(ours, as: isAnother ? random.pick(ModelDatabase.people) : clients[number].person)
        } catch {
            preconditionFailure("there are no sockets left: \(error)")
        }
    }

    private func cut(_ client: Client) {
        client.cut()
        noteLoss(client)
    }

    /// Disconnects the client for long, until a moment. Before it returns, rows are written and messages sent to its
    /// topics.
    private func sleep(_ client: Client, _ seed: UInt64, until moment: UInt64) {
        let topics = (0..<Self.channelsPerClient).compactMap { client.topic(of: $0) }
        guard client.isConnected else { return }
        returns.append((moment, client.number))
        cut(client)
        var random = SeededRandom(seed: seed)
        for _ in 0..<3 { write(random.next()) }
        var transaction = database.begin()
        for topic in topics where !shape.isOfRows { database.say(to: topic, in: &transaction) }
        if !transaction.changes.isEmpty { commit(transaction, as: database.takeXID()) }
    }

    /// Disconnects a client without the hub noticing. The hub's end of its socket stays open until a moment.
    ///
    /// - Parameter finishing: time at which the client ends its half of the connection; nil if it does not.
    private func vanish(_ client: Client, until moment: UInt64, finishingAt finishing: UInt64? = nil) {
        guard let descriptor = client.vanish() else { return }
        readable.remove(descriptor)
        vanished.append((moment, finishing, descriptor))
        noteLoss(client)
    }

    /// Closes the sockets of vanished clients that were to stay open until this moment or an earlier one, and ends the
    /// clients' half of those that were to end it.
    private func closeVanished(until moment: UInt64) {
        for place in vanished.indices where vanished[place].finishing.map({ $0 <= moment }) ?? false {
            StreamSocket.finishSending(vanished[place].descriptor)
            vanished[place].finishing = nil
        }
        for (at, _, descriptor) in vanished where at <= moment { StreamSocket.close(descriptor) }
        vanished.removeAll { $0.at <= moment }
    }

    private var vanished: [(at: UInt64, finishing: UInt64?, descriptor: Int32)] = []

    private func noteLoss(_ client: Client) {
        guard !client.isConnected, !isReturning(client.number) else { return }
        lost.insert(client.number)
    }

    private func isReturning(_ number: Int) -> Bool { returns.contains { $0.client == number } }

    /// Schedules the return of each disconnected client. The client then joins its channels again.
    private func reconnectLater() {
        for number in lost.sorted() {
            let pause = UInt64.random(in: 10...1500, using: &random)
            returns.append((time.monotonicNanoseconds() + pause * 1_000_000, number))
        }
        lost = []
        guard !returns.isEmpty else { return }
        let now = time.monotonicNanoseconds()
        for (_, number) in returns.filter({ $0.at <= now }) {
            connect(number)
            for (channel, seat) in clients[number].seats.sorted(by: { $0.key < $1.key }) {
                clients[number].join(seat, on: channel)
            }
            noteOutput(clients[number])
        }
        returns.removeAll { $0.at <= now }
    }

    private var returns: [(at: UInt64, client: Int)] = []

    /// Lets clients read their data. Returns true if any client had data.
    private func readAll() -> Bool {
        let now = time.monotonicNanoseconds()
        frozen = frozen.filter { clients[$0].frozenUntil > now }
        var ready = unsaid
        unsaid = []
        // Epoll reports the ready clients in turn, one batch at a time.
        var (asked, batch) = (0, Epoll.batch)
        while batch == Epoll.batch, asked <= clients.count {
            batch = readable.wait(milliseconds: 0)
            asked += batch
            for place in 0..<batch { ready.insert(Int(readable.event(place).key)) }
        }
        var didRead = false
        for number in ready.sorted() where !frozen.contains(number) {
            didRead = clients[number].read() || didRead
            noteOutput(clients[number])
            noteLoss(clients[number])
        }
        return didRead
    }

    private func noteOutput(_ client: Client) { if client.hasOutput { unsaid.insert(client.number) } }

    // MARK: Running

    public func run(_ steps: [Step], trace: ((String) -> Void)? = nil) -> Report {
        oracle.trace = trace.map { trace in
            { [time] in trace("\((time.monotonicNanoseconds() - VirtualTime.start) / 1_000_000) ms  \($0)") }
        }
        for step in steps {
            oracle.trace?("\(step.action)")
            stepsDone += 1
            pass(milliseconds: step.milliseconds)
            perform(step.action)
            if !oracle.complaints.isEmpty { break }
        }
        return report()
    }

    private func report() -> Report {
        var report = Report()
        report.complaints = oracle.complaints
        report.deliveries = oracle.tally.deliveries
        report.said = oracle.tally.said
        report.joins = oracle.tally.joins
        report.resumed = oracle.tally.resumed
        report.refetched = oracle.tally.refetched
        report.returned = oracle.tally.returned
        report.rejoined = oracle.tally.rejoined
        report.parked = Int(metrics.parked[.socket].value + metrics.parked[.answers].value)
        report.passedOver = Int(metrics.segmentsPassedOver.value)
        report.letGo = stream.segmentsLetGo
        report.told = oracle.tally.told
        report.toldOfGaps = oracle.tally.toldOfGaps
        report.excused = oracle.tally.excused
        report.faults = faults + stream.failures + server.lost
        report.commits = database.lastCommit
        report.changes = database.commits.reduce(0) { $0 + $1.changes.count }
        report.bytesHeard = clients.reduce(0) { $0 + $1.bytesHeard }
        report.milliseconds = (time.monotonicNanoseconds() - VirtualTime.start) / 1_000_000
        report.coverage = coverage.counts
        for (loss, count) in losses { report.coverage["history × \(loss)"] = count }
        report.fingerprint = oracle.fingerprint
        return report
    }

    /// Closes all descriptors of the simulation.
    public func end() {
        for client in clients { client.cut() }
        closeVanished(until: .max)
        hub?.gateway.stop()
        hub?.catalog.stop()
        agenda.removeAll()
        stream.die()
        // The stream and the simulation refer to each other, so one reference is removed.
        stream.hasGap = { _ in }
        hub = nil
    }

    /// Moves the clock forward by this time, and runs everything that becomes due.
    private func pass(milliseconds: UInt64) {
        let until = time.monotonicNanoseconds() + milliseconds * 1_000_000
        repeat {
            let isQuiet = !turnEverything()
            let now = time.monotonicNanoseconds()
            let step = UInt64.random(in: 1...5, using: &random) * 1_000_000
            time.advance(to: min(until, max(now + step, isQuiet ? nextDuty : 0)))
        } while time.monotonicNanoseconds() < until
        _ = turnEverything()
    }

    /// Virtual time of the next event that needs no action of the script.
    private var nextDuty: UInt64 {
        guard stream.isIdle, frozenLoops.isEmpty, lost.isEmpty, unsaid.isEmpty else { return 0 }
        let faults = damage.bits.map(\.until) + (readsFailUntil == 0 ? [] : [readsFailUntil])
        let duties = [
            agenda.next, hub?.gateway.nextDuty, nextBeat, vanished.map { $0.finishing ?? $0.at }.min(),
            returns.map(\.at).min(),
            faults.min(),
        ]
        return duties.compactMap(\.self).min() ?? 0
    }

    /// Lets the agenda, the stream, the loops and the clients run once. Returns true if anything was done.
    private func turnEverything() -> Bool {
        var didAnything = agenda.run()
        hearStream()
        turnLoops()
        departures?.flush()
        let now = time.monotonicNanoseconds()
        closeVanished(until: now)
        restore(until: now)
        if readsFailUntil != 0, now >= readsFailUntil {
            storage.setFaults { _ in }
            readsFailUntil = 0
        }
        didAnything = readAll() || didAnything
        reconnectLater()
        if now >= nextBeat {
            nextBeat = now + 20_000_000_000
            for client in clients {
                client.beat()
                noteOutput(client)
            }
        }
        return didAnything
    }

    private func hearStream() {
        guard time.monotonicNanoseconds() >= streamFrozenUntil else { return }
        if !stream.isRunning {
            // The stream starts again after a failure of the disk.
            do { try stream.start() } catch { return faults += 1 }
        }
        stream.hear(
            atMost: Int.random(in: 1...40, using: &random), flushes: UInt64.random(in: 0..<10, using: &random) < 7)
    }

    private func turnLoops() {
        let now = time.monotonicNanoseconds()
        for loop in 0..<Self.loopCount where frozenLoops[loop, default: 0] <= now {
            let most = UInt64.random(in: 0..<10, using: &random) == 0 ? 1 : 8
            var count = 0
            while hub?.gateway.step(loop) == true, count < most { count += 1 }
            if count < most { rests.counts[loop] += 1 }
            frozenLoops[loop] = nil
        }
    }

    // MARK: Steps

    private func perform(_ action: Step.Action) {
        let now = time.monotonicNanoseconds()
        switch action {
        case .write(let seed): write(seed)
        case .say(let seed): if shape.isOfRows { write(seed) } else { say(seed) }
        case .truncate(let seed): truncate(seed)
        case .memberships(let seed): changeMemberships(seed)
        case .define(let seed): define(seed)
        case .join(let client, let channel, let seed):
            let channel = shape.isOfCrowd(client) ? 0 : channel
            if clients[client].topic(of: channel) == nil {
                clients[client].join(seat(seed, client, channel), on: channel)
            } else if seed % 4 == 0 {
                clients[client].joinAgain(on: channel)
            }
        case .become(let client, let channel, let person):
            clients[client].become(ModelDatabase.people[person], on: channel)
        case .leave(let client, let channel): clients[client].leave(channel)
        case .everybodyLeaves:
            for client in clients { for channel in 0..<Self.channelsPerClient { client.leave(channel) } }
        case .gather(let seed): gather(seed)
        case .cut(let client):
            faults += 1
            cut(clients[client])
        case .sleep(let client, let seed, let milliseconds):
            faults += 1
            sleep(clients[client], seed, until: now + milliseconds * 1_000_000)
            pass(milliseconds: milliseconds + 2_000)
        case .vanish(let client, let milliseconds):
            faults += 1
            vanish(clients[client], until: now + milliseconds * 1_000_000)
        case .finish(let client, let milliseconds):
            faults += 1
            vanish(
                clients[client], until: now + milliseconds * 1_000_000, finishingAt: now + milliseconds * 500_000)
        case .scatter(let seed, let percent):
            faults += 1
            for client in some(percent, of: seed) { cut(client) }
        case .freezeClient(let client, let milliseconds):
            faults += 1
            freeze(clients[client], until: now + milliseconds * 1_000_000)
        case .freezeCrowd(let seed, let percent, let milliseconds):
            faults += 1
            for client in some(percent, of: seed) { freeze(client, until: now + milliseconds * 1_000_000) }
        case .freezeLoop(let loop, let milliseconds):
            faults += 1
            frozenLoops[loop] = now + milliseconds * 1_000_000
        case .freezeStream(let milliseconds):
            faults += 1
            streamFrozenUntil = now + milliseconds * 1_000_000
        case .cutStream:
            faults += 1
            stream.cut()
        case .failWrites(let after):
            faults += 1
            storage.setFaults { faults in
                faults.failWriteAfter = after
                faults.tornBytes = 7
                faults.times = 2
            }
        case .failSyncs(let after):
            faults += 1
            storage.setFaults { faults in
                faults.failSyncAfter = after
                faults.times = 2
            }
        case .failOpens(let milliseconds):
            failReads(until: now + milliseconds * 1_000_000) { $0.failOpenAfter = 0 }
        case .failReads(let milliseconds):
            failReads(until: now + milliseconds * 1_000_000) { $0.failReadAfter = 0 }
        case .rot(let seed, let milliseconds):
            rot(seed, until: now + milliseconds * 1_000_000)
        case .beAway(let milliseconds):
            faults += 1
            server.beAway(milliseconds: milliseconds)
        case .loseAnswers(let milliseconds):
            faults += 1
            server.loseAnswers(milliseconds: milliseconds)
        case .lose(let loss):
            faults += 1
            lose(loss)
        case .retain(let milliseconds):
            faults += 1
            stream.retain(milliseconds: milliseconds)
        case .crash(let power):
            faults += 1
            crash(power: power)
        case .setWallClock(let seconds):
            faults += 1
            time.setWallClock(aheadBy: seconds)
        case .settle: settle()
        }
    }

    private func failReads(until moment: UInt64, _ change: (inout FaultyStorage.Faults) -> Void) {
        faults += 1
        readsFailUntil = moment
        storage.setFaults { faults in
            change(&faults)
            faults.times = .max
            faults.code = random.pick([EMFILE, ENFILE, ENOMEM, EIO])
        }
    }

    private func rot(_ seed: UInt64, until moment: UInt64) {
        damage.lastSeen = max(damage.lastSeen ?? 0, moment)
        // In the current segment, the damage is in a part that a lagging loop has yet to read.
        if seed % 3 == 0, let end = stream.end?.state, end.segmentBytes > 200 {
            faults += 1
            let name = String("\(10_000_000_000 + end.segment)".dropFirst()) + ".segment"
            let bit = Int(end.segmentBytes - 1 - seed / 3 % min(1_000, end.segmentBytes - 129)) * 8
            storage.rot(bit, of: name)
            return damage.bits.append((moment, bit, name))
        }
        guard
            let sealed = try? storage.names().filter({ $0.hasSuffix(".segment") && $0.first == "0" }).sorted()
                .dropLast(),
            let name = sealed.randomElement(using: &random), let bytes = storage.bytes(of: name), !bytes.isEmpty
        else { return }
        faults += 1
        let bit = Int(seed % UInt64(bytes.count * 8))
        storage.rot(bit, of: name)
        damage.bits.append((moment, bit, name))
    }

    /// Restores the flipped bits that were to last until this moment or an earlier one.
    private func restore(until moment: UInt64) {
        for place in damage.bits where place.until <= moment { storage.rot(place.bit, of: place.name) }
        damage.bits.removeAll { $0.until <= moment }
    }

    /// Stops all faults, and lets every client receive all outstanding events.
    private func settle() {
        storage.setFaults { _ in }
        readsFailUntil = 0
        restore(until: .max)
        frozenLoops = [:]
        streamFrozenUntil = 0
        for client in clients { client.frozenUntil = 0 }
        frozen = []
        closeVanished(until: .max)
        witness.isCalm = true
        defer { witness.isCalm = false }
        pass(milliseconds: 25_000)
        // The hub reports missing notes when it inspects its channels, at the latest.
        if witness.isScarce { pass(milliseconds: 10_000) }
        // A crowd or a slow server needs longer, so the simulation waits while events still arrive.
        var (heard, patience) = (-1, Self.mostPatience)
        while shape.hasCrowd || shape.isSluggish, heard != oracle.tally.deliveries, patience > 0 {
            heard = oracle.tally.deliveries
            patience -= 1
            pass(milliseconds: 5_000)
        }
        oracle.settle()
        oracle.complain(of: witness.complaints(joined))
    }

    /// Number of joined channels by topic.
    private var joined: [String: Int] {
        var joined: [String: Int] = [:]
        for client in clients where client.isConnected {
            for channel in 0..<Self.channelsPerClient {
                if let topic = client.topic(of: channel) { joined["realtime:\(topic)", default: 0] += 1 }
            }
        }
        return joined
    }

    private func freeze(_ client: Client, until moment: UInt64) {
        client.frozenUntil = moment
        frozen.insert(client.number)
    }

    /// Returns a random selection of the crowd.
    private func some(_ percent: UInt64, of seed: UInt64) -> [Client] {
        var random = SeededRandom(seed: seed)
        return clients[Shape.individuals...].filter { _ in random.next() % 100 < percent }
    }

    /// Lets every client of the crowd join that has not joined.
    private func gather(_ seed: UInt64) {
        var random = SeededRandom(seed: seed)
        for client in clients[Shape.individuals...] {
            client.join(seat(random.next(), client.number, 0), on: 0)
            noteOutput(client)
        }
    }

    private func seat(_ seed: UInt64, _ client: Int, _ channel: Int) -> Seat {
        let isOfCrowd = shape.isOfCrowd(client)
        let seed = isOfCrowd ? seed % Shape.seatsOfCrowd : seed
        var random = SeededRandom(seed: seed)
        // A client that wants only single rows leaves segments that its catch-up can skip.
        let wantsRows = random.next() % 5 == 0 || shape.isOfRows
        let tables = shape.isOfRows ? ModelTable.unguarded : ModelTable.subscribed
        // Some clients receive only the database's messages to their topic.
        let least = clients[client].isPlain && !shape.isOfRows ? 0 : 1
        let bindings = (0..<Int.random(in: least...4, using: &random)).map { _ in
            var binding = Seat.Binding(
                table: random.pick(tables),
                operation: random.pick([nil, nil, nil, .insert, .update, .delete]),
                room: random.pick([nil, nil, nil, 0, 1, 2]))
            if wantsRows {
                binding.room = nil
                binding.row = Int.random(in: 1...60, using: &random)
            }
            return binding
        }
        return Seat(topic: isOfCrowd ? "crowd\(seed)" : "c\(client)-\(channel)", bindings: bindings)
    }

    // MARK: Writing

    private func commit(_ transaction: ModelDatabase.Transaction, as xid: UInt32) {
        database.commit(
            transaction, as: xid, at: time.unixMicroseconds(),
            visibleFrom: time.monotonicNanoseconds() + UInt64.random(in: 0...8, using: &random) * 1_000_000)
    }

    private func write(_ seed: UInt64) {
        var random = SeededRandom(seed: seed)
        var transaction = database.begin()
        let most = random.pick(shape.hasCrowd ? [1, 3, 10, 60, 200] : [1, 1, 3, 10])
        for _ in 0..<Int.random(in: 1...most, using: &random) {
            let table = random.pick(ModelTable.subscribed)
            let owner = random.pick(ModelDatabase.people)
            let room = Int.random(in: ModelDatabase.rooms, using: &random)
            let row = transaction.rows[table]?.all.randomElement(using: &random)
            let kind = Int.random(in: 0..<10, using: &random)
            guard let row, kind > 3 else {
                let size = random.pick(shape.hasCrowd ? [3, 3, 3, 40, 40, 900] : [3, 3, 40, 900])
                database.insert(
                    table, owner: owner, room: room, body: String(repeating: "x", count: size), in: &transaction)
                continue
            }
            if kind > 7 {
                database.delete(row, of: table, in: &transaction)
            } else {
                let id = kind == 7 ? database.freshID() : row.id
                database.update(row, of: table, in: &transaction) { row in
                    row.id = id
                    if kind > 4 { row.owner = owner }
                    if kind > 5 { row.room = room }
                }
            }
        }
        commit(transaction, as: database.takeXID())
    }

    /// Sends messages to joined topics, sometimes in a transaction with changed rows.
    private func say(_ seed: UInt64) {
        var random = SeededRandom(seed: seed)
        var transaction = database.begin()
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            let client = clients[shape.someClient(&random)]
            let joined = (0..<Self.channelsPerClient).compactMap { client.topic(of: $0) }
            guard let topic = joined.randomElement(using: &random) else { continue }
            database.say(to: topic, in: &transaction)
        }
        if shape.takesMessagesBack, Bool.random(using: &random) {
            database.takeBackMessage(&random, in: &transaction)
        }
        if Bool.random(using: &random) {
            database.insert(.plain, owner: "ana", room: 0, body: "said", in: &transaction)
        }
        if !transaction.changes.isEmpty { commit(transaction, as: database.takeXID()) }
    }

    private func truncate(_ seed: UInt64) {
        var random = SeededRandom(seed: seed)
        var transaction = database.begin()
        let table = random.pick(ModelTable.ofRows)
        database.truncate(table, in: &transaction)
        if table != .members, Bool.random(using: &random) {
            database.insert(table, owner: random.pick(ModelDatabase.people), room: 0, body: "anew", in: &transaction)
        }
        commit(transaction, as: database.takeXID())
    }

    private func changeMemberships(_ seed: UInt64) {
        var random = SeededRandom(seed: seed)
        var transaction = database.begin()
        for _ in 0..<Int.random(in: 1...2, using: &random) {
            let rows = transaction.rows[.members]?.all ?? []
            let row = rows.randomElement(using: &random)
            let (owner, room) = (random.pick(ModelDatabase.people), Int.random(in: ModelDatabase.rooms, using: &random))
            switch (row, Int.random(in: 0..<3, using: &random)) {
            case (let row?, 1) where rows.count > 2: database.delete(row, of: .members, in: &transaction)
            case (let row?, 2):
                database.update(row, of: .members, in: &transaction) { row in
                    row.owner = owner
                    row.room = room
                }
            default: database.insert(.members, owner: owner, room: room, body: "", in: &transaction)
            }
        }
        // Policies evaluate rows with the memberships at the end of the transaction.
        if Int.random(in: 0..<2, using: &random) == 0 {
            database.insert(
                .items, owner: random.pick(ModelDatabase.people),
                room: Int.random(in: ModelDatabase.rooms, using: &random),
                body: "with members", in: &transaction)
        }
        commit(transaction, as: database.takeXID())
    }

    private func define(_ seed: UInt64) {
        var random = SeededRandom(seed: seed)
        var transaction = database.begin()
        transaction.defines = true
        let table = random.pick(ModelTable.subscribed).rawValue
        // A silent stream does not report changed policies, so only policies change here.
        switch shape.isSilent ? 0 : Int.random(in: 0..<3, using: &random) {
        case 0: transaction.rules.sharesRoomZero.toggle()
        case 1: transaction.rules.extras[table] = (transaction.rules.extras[table] ?? 0) % 3 + 1
        default:
            if transaction.rules.namedByKey.remove(table) == nil { transaction.rules.namedByKey.insert(table) }
        }
        commit(transaction, as: database.takeXID())
        guard shape.isSilent else { return }
        var next = database.begin()
        database.insert(
            .notes, owner: random.pick(ModelDatabase.people), room: 0, body: "under other policies", in: &next)
        commit(next, as: database.takeXID())
    }
}
