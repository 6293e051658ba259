import Glibc
import Postgres
import Synchronization
import System

/// Times at which the verifier's faults began and ended, for explaining findings.
final class FaultHistory: Sendable {
    struct Deed: Sendable {
        var fault: Fault
        var begin: UInt64
        var end: UInt64?
    }

    private let deeds = Mutex<[Deed]>([])

    func begin(_ fault: Fault) -> Int {
        deeds.withLock { deeds in
            deeds.append(Deed(fault: fault, begin: Clock.monotonicNanoseconds()))
            return deeds.count - 1
        }
    }

    func end(_ index: Int) { deeds.withLock { $0[index].end = Clock.monotonicNanoseconds() } }

    var all: [Deed] { deeds.withLock { $0 } }

    /// Faults that excuse a deviation of the hub, in the order in which they began.
    var causes: [ClientLedger.Cause] {
        all.compactMap { deed in
            deed.fault.excuse.map { ClientLedger.Cause(begin: deed.begin, end: deed.end ?? .max / 2, effect: $0) }
        }
    }

    /// Returns the fault that began last before this monotonic time, in nanoseconds.
    func fault(before at: UInt64) -> Fault? { all.last { $0.begin <= at }?.fault }

    /// Returns a text that lists the faults near a monotonic time in nanoseconds.
    func around(_ at: UInt64) -> String {
        let second: UInt64 = 1_000_000_000
        let near = all.filter { $0.begin < at + second && at < ($0.end ?? .max / 2) + 20 * second }
        return near.suffix(6).map { deed in
            let ago = (Double(at) - Double(deed.begin)) / 1e9
            return "\(deed.fault.rawValue) \((ago * 10).rounded() / 10) s before"
        }.joined(separator: ", ")
    }
}

/// Everything that the faults of a verification run can disturb: the hub, the database, the proxy and the clients. It
/// also holds the state that the run's threads share.
final class VerifyStage: Sendable {
    let database: VerifyDatabase
    /// Hubs that serve the clients: one, or the nodes of a cluster.
    let hubs: [VerifyHub]
    /// Servers of the cluster; nil without one.
    let servers: VerifyServers?
    /// Network of the cluster; nil if it cannot be cut.
    let network: VerifyNetwork?
    let proxy: FaultyProxy
    let own: OwnClients
    let real: RealClients?
    let gate = VerifyGate()
    let history = FaultHistory()
    let isOver = Mutex(false)
    /// State of a request for quiet, in which no writer writes. A thread of faults makes the request. The verifier's
    /// main thread answers when all clients have received everything up to a fence (a row for all clients).
    let quiet = Mutex(Quiet.none)

    /// Reason why the run cannot continue; nil if there is none. The reason need not be a fault of the hub.
    let failure = Mutex<String?>(nil)
    /// Numbers of transactions that writers committed and that failed.
    let tallies = Tallies()
    private let threads = Mutex(0)

    enum Quiet: Sendable {
        case none, asked, reached, failed
    }

    final class Tallies: Sendable {
        private let counts = Mutex((0, 0))

        func withLock<Result: Sendable>(
            _ body: (inout sending (Int, Int)) throws -> sending Result
        ) rethrows -> sending Result {
            try counts.withLock(body)
        }
    }

    init(
        database: VerifyDatabase, hubs: [VerifyHub], servers: VerifyServers?, network: VerifyNetwork?,
        proxy: FaultyProxy, own: OwnClients, real: RealClients?
    ) {
        self.database = database
        self.hubs = hubs
        self.servers = servers
        self.network = network
        self.proxy = proxy
        self.own = own
        self.real = real
    }

    var hasThreads: Bool { threads.withLock { $0 > 0 } }

    /// Starts a thread of the run, for a writer or for faults.
    func start(_ name: String, _ body: @escaping @Sendable () throws -> Void) throws -> BackgroundThread {
        threads.withLock { $0 += 1 }
        return try BackgroundThread(name) { [self] in
            do { try body() } catch { failure.withLock { $0 = "\(error)" } }
            threads.withLock { $0 -= 1 }
        }
    }

    var hasEnded: Bool { isOver.withLock { $0 } }

    /// Runs the faults of one lane until the run ends.
    func run(_ schedule: FaultSchedule) throws {
        var schedule = schedule
        var hand = FaultExecutor(self)
        while !hasEnded {
            let entry = schedule.next()
            rest(entry.pauseMilliseconds)
            if hasEnded { break }
            if entry.fault.needsQuiet {
                let index = history.begin(entry.fault)
                defer { history.end(index) }
                try hand.commit(entry)
            } else {
                try gate.pass {
                    let index = history.begin(entry.fault)
                    defer { history.end(index) }
                    try hand.commit(entry)
                }
            }
        }
    }

    /// Waits for this time, or until the run ends.
    func rest(_ milliseconds: Int) {
        var left = milliseconds
        while left > 0, !hasEnded {
            Pause.milliseconds(min(left, 100))
            left -= 100
        }
    }
}

extension Fault {
    /// True for a fault that changes who may see a row. Such a fault waits until nobody writes and all clients have
    /// caught up with the database. Otherwise the hub may apply the new policy to changes before it, as the
    /// documentation says.
    var needsQuiet: Bool {
        switch self {
        case .policyChanged, .publicationChanged, .membershipsChanged: true
        default: false
        }
    }
}

/// Executor of the faults in a schedule.
struct FaultExecutor {
    private let stage: VerifyStage
    private var session: VerifySession
    private var chance = VerifyChance(0, lane: 0)

    init(_ stage: VerifyStage) {
        self.stage = stage
        session = VerifySession(stage.database)
    }

    mutating func commit(_ entry: FaultSchedule.Entry) throws {
        chance = VerifyChance(entry.seed, lane: 1)
        switch entry.fault.lane {
        case .connections: disturbConnections(entry)
        case .behind: try disturbBehind(entry, stage.hubs.count == 1 ? stage.hubs[0] : chance.pick(stage.hubs))
        case .servers: try disturbServers(entry)
        }
    }

    private mutating func disturbConnections(_ entry: FaultSchedule.Entry) {
        let (oneIn, seed) = (chance.number(1...8), entry.seed)
        switch entry.fault {
        case .socketsCut: stage.proxy.order(.cut, oneIn: oneIn, seed: seed)
        case .linksStalled:
            let milliseconds = chance.number(300...6000)
            stage.proxy.order(.hold(milliseconds: milliseconds), oneIn: oneIn, seed: seed)
            stage.rest(milliseconds)
            if chance.once(in: 2) { stage.proxy.order(.cut, oneIn: oneIn, seed: seed) }
        case .linksSlow:
            let (milliseconds, pause) = (chance.number(1000...6000), chance.number(20...200))
            stage.proxy.order(.slow(milliseconds: milliseconds, pauseMilliseconds: pause), oneIn: oneIn, seed: seed)
            stage.rest(milliseconds)
        case .proxyKilled:
            let milliseconds = chance.number(200...3000)
            stage.proxy.order(.swallow(milliseconds: milliseconds), oneIn: oneIn, seed: seed)
            stage.rest(milliseconds)
        case .clientsFrozen:
            let milliseconds = chance.number(500...8000)
            stage.own.order(.freeze(milliseconds: milliseconds), oneIn: oneIn, seed: seed)
            stage.real?.stop(oneIn: 2, seed: seed)
            stage.rest(milliseconds)
            stage.real?.goOn()
            if chance.once(in: 3) { stage.proxy.order(.cut, oneIn: oneIn, seed: seed) }
        case .tokensRenewed: stage.own.order(.renew, oneIn: oneIn, seed: seed)
        default: stage.own.order(.expire, oneIn: oneIn, seed: seed)
        }
    }

    private mutating func disturbBehind(_ entry: FaultSchedule.Entry, _ hub: VerifyHub) throws {
        switch entry.fault {
        case .hubKilled: try end(hub, SIGKILL)
        case .hubTerminated: try end(hub, SIGTERM)
        case .hubFrozen:
            let milliseconds = chance.number(200...4000)
            stage.proxy.excuseHub(milliseconds: milliseconds + 5000)
            hub.signal(SIGSTOP)
            stage.rest(milliseconds)
            hub.signal(SIGCONT)
        case .hubDiskFull:
            guard hub.disk.isSmall else { return }
            hub.disk.fill()
            stage.rest(chance.number(300...3000))
            hub.disk.empty()
        case .serverKilled, .serverRestarted:
            try stage.database.restart(
                killing: entry.fault == .serverKilled, pauseMilliseconds: chance.number(0...2000))
        case .walsenderKilled:
            _ = session.attempt("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        case .backendsKilled:
            _ = session.attempt(
                """
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.6
                """)
        case .catalogStirred: stirCatalog()
        case .slotDropped: try dropSlot()
        case .publicationChanged:
            try lasting(
                "ALTER PUBLICATION supabase_realtime DROP TABLE \(VerifyTable.listed)",
                "ALTER PUBLICATION supabase_realtime ADD TABLE \(VerifyTable.listed)")
        case .policyChanged:
            try lasting(
                "ALTER POLICY reads ON owned USING (owner = auth.uid() OR kind = 'b')",
                "ALTER POLICY reads ON owned USING (owner = auth.uid())")
        case .standbyAbsent: try missStandby()
        case .clockStepped:
            try hub.clock.step(seconds: chance.number(-7200...7200))
            stage.rest(chance.number(0...4000))
            // The next fault, or a restart of the hub, may find a clock that is still wrong.
            if chance.once(in: 2) { try hub.clock.step(seconds: 0) }
        default: try swapMembers()
        }
    }

    /// Makes commits wait for a synchronous standby that does not exist. The hub's log has such commits before any
    /// session can see them. They stop waiting when the setting is reset, when their sessions are ended, or when the
    /// server is killed.
    private mutating func missStandby() throws {
        // These statements commit no transaction, so they do not wait for the standby themselves.
        _ = try session.insist("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
        _ = try session.insist("SELECT pg_reload_conf()")
        stage.rest(chance.number(500...7000))
        switch chance.number(0...3) {
        case 0: try stage.database.restart(killing: true, pauseMilliseconds: 0)
        case 1:
            _ = session.attempt(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        default: break
        }
        _ = try session.insist("ALTER SYSTEM RESET synchronous_standby_names")
        _ = try session.insist("SELECT pg_reload_conf()")
    }

    private mutating func end(_ hub: VerifyHub, _ signal: Int32) throws {
        // A hub that shuts down disconnects its clients one after the other. It also disconnects clients that connect
        // during this time.
        stage.proxy.excuseHub(milliseconds: 120_000)
        hub.end(signal)
        stage.rest(chance.number(0...2500))
        try hub.start()
        stage.proxy.hubIsWell()
    }

    /// Disturbs one NATS server, or kills all of them. A majority of the others goes on; without it the hubs wait.
    private mutating func disturbServers(_ entry: FaultSchedule.Entry) throws {
        guard let servers = stage.servers else { return }
        let index = chance.number(0...VerifyServers.count - 1)
        switch entry.fault {
        case .natsKilled, .natsTerminated:
            servers.end(index, entry.fault == .natsKilled ? SIGKILL : SIGTERM)
            stage.rest(chance.number(0...6000))
            try servers.start(index)
        case .natsFrozen:
            servers.signal(index, SIGSTOP)
            stage.rest(chance.number(500...15_000))
            servers.signal(index, SIGCONT)
        case .natsAllKilled:
            for index in 0..<VerifyServers.count { servers.end(index, SIGKILL) }
            stage.rest(chance.number(0...3000))
            for index in 0..<VerifyServers.count { try servers.start(index) }
        case .leaderMoved: try servers.moveLeader(asking: index)
        default: cutNetwork(entry.fault, index)
        }
        // Servers catch up before the next one is disturbed, as they would in a rolling restart.
        stage.rest(chance.number(4000...10_000))
    }

    /// Cuts a server or a hub off for a while. Packets vanish, and nobody is told.
    private mutating func cutNetwork(_ fault: Fault, _ server: Int) {
        guard let network = stage.network else { return }
        let servers = (0..<VerifyServers.count).map { VerifyNetwork.Node.server($0) }
        let hubs = stage.hubs.indices.map { VerifyNetwork.Node.hub($0) }
        let hub = chance.pick(hubs)
        let (node, others): (VerifyNetwork.Node, [VerifyNetwork.Node]) =
            switch fault {
            case .natsCut: (.server(server), servers + hubs)
            case .routesCut: (.server(server), servers)
            case .hubCut: (hub, servers)
            default: (hub, [.database])
            }
        network.cut(node, from: others)
        stage.rest(chance.number(500...15_000))
        network.heal(node, to: others)
    }

    private mutating func stirCatalog() {
        let number = chance.number(1...1000)
        _ = session.attempt(
            chance.pick([
                "ALTER TABLE other ADD COLUMN extra_\(number) int; ALTER TABLE other DROP COLUMN extra_\(number)",
                "ALTER POLICY reads ON other USING (v > \(number) OR v IS NULL)",
                "CREATE TABLE passing_\(number) (id int PRIMARY KEY); DROP TABLE passing_\(number)",
                "BEGIN; REVOKE SELECT ON owned FROM anon; GRANT SELECT ON owned TO anon; COMMIT",
                "ALTER POLICY reads ON shared USING (team IN (SELECT m.team FROM members m WHERE m.person = auth.uid()))",
            ]))
    }

    // MARK: Faults in quiet

    /// Calls `body` while no writer writes and all clients have caught up with the database. Afterwards waits until all
    /// clients have caught up again.
    private mutating func quietly(_ body: (inout FaultExecutor) throws -> Void) throws {
        stage.gate.close()
        defer { stage.gate.open() }
        guard reachQuiet() else { return }
        try body(&self)
        _ = reachQuiet()
    }

    private func reachQuiet() -> Bool {
        stage.quiet.withLock { $0 = .asked }
        defer { stage.quiet.withLock { $0 = .none } }
        while true {
            switch stage.quiet.withLock({ $0 }) {
            case .reached: return true
            case .failed, .none: return false
            case .asked: Pause.milliseconds(10)
            }
        }
    }

    /// Runs SQL that changes the database, waits, and runs SQL that restores the old state.
    private mutating func lasting(_ change: String, _ back: String) throws {
        try quietly { _ = try $0.session.insist(change) }
        stage.rest(chance.number(2000...6000))
        // The old state is restored even if the run ends during the pause.
        try quietly { _ = try $0.session.insist(back) }
    }

    private mutating func swapMembers() throws {
        let (from, to) = (
            chance.pick(Array(VerifyPerson.allCases.prefix(4))), chance.pick(Array(VerifyPerson.allCases.prefix(4)))
        )
        let team = chance.number(1...4)
        try quietly {
            _ = try $0.session.insist(
                """
                DELETE FROM members WHERE team = \(team) AND person = '\(from.id)';
                INSERT INTO members VALUES (\(team), '\(to.id)') ON CONFLICT DO NOTHING
                """)
        }
    }

    /// Drops the replication slot. Commits are lost until the hub has a new slot, and the hub has to tell all clients.
    private mutating func dropSlot() throws {
        // This fault does not wait for quiet: history must break while writers write.
        let drop = """
            DO $$ BEGIN
                FOR i IN 1..200 LOOP
                    PERFORM pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '\(VerifyHub.slot)' AND active;
                    BEGIN
                        PERFORM pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '\(VerifyHub.slot)';
                        EXIT;
                    EXCEPTION WHEN object_in_use THEN PERFORM pg_sleep(0.01);
                    END;
                END LOOP;
            END $$
            """
        _ = session.attempt(drop)
        for _ in 0..<600 {
            let rows = session.attempt(
                "SELECT 1 FROM pg_replication_slots WHERE slot_name = '\(VerifyHub.slot)' AND active")
            if rows?.isEmpty == false { break }
            Pause.milliseconds(50)
        }
    }
}
