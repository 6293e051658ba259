import Diagnostics
import System

/// Benchmark of row security that the hub decides itself, compared with asking PostgreSQL for each subscriber.
struct RlsScenario: Scenario {
    let name = "rls"
    let summary = "Row Level Security for 1 to 100,000 subscribers, beside one EXISTS per subscriber and change."
    let discussion = """
        Starts a private PostgreSQL with a table for each policy (five columns, REPLICA IDENTITY FULL), and hubs in this process, \
        each with one loop, with policies compiled from that database's catalog. Every subscriber has claims of its own. \
        Where rows have an owner or belong to an operation, each is for exactly one of the subscribers, in turns, however \
        many there are; every user is a member of 25 operations. 'none' has no row security, and 'fallback' is a function \
        in plpgsql that says the same as 'owner', which the hub leaves to PostgreSQL; it reads the claims for each row, or they \
        are read once and handed to it.

        The hub is held while rows are committed, one a transaction, until all of them are in its event log. Then it reads \
        on: changes a second count from there until the last subscriber has the last of them. 'Sockets excluded': clients \
        without sockets, played within the process. Log, catalog, policies, predicate index, frames and outboxes are as for any \
        client; only the call that would hand the bytes to the kernel is left out. 'Sockets included': clients over \
        loopback in a process of their own, a connection each. Writing the rows, and their way into the log, is in neither.

        Baseline, in turns on the same PostgreSQL: a function that sets role and claims and runs EXISTS by primary key, once for each \
        subscriber, within the server and with plans that are made once. It decodes nothing and delivers nothing. Where there is \
        no row security it is that loop alone.

        Join storm: all subscribe at the same time to the table with memberships; until all have "Subscribed to PostgreSQL".

        Every subscriber must get exactly the changes that it may see, once and in order; else there are no figures. Played clients \
        look at each message in a round of its own before and after the measured ones, in which they only count.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        // The hubs run in this process. This keeps their messages out of its standard error.
        Log.shared.configure(level: .warning, format: .text)
        let place = try Workplace(below: settings.directory)
        settings.progress("starting a private PostgreSQL")
        let stage = try RlsStage(place)
        defer { stage.close() }
        var results: [BenchResult] = []
        for policy in RlsPolicy.allCases {
            let sizes = policy.sizes(isQuick: settings.isQuick).filter { settings.includes(policy.caseName($0)) }
            guard let most = sizes.max() else { continue }
            // The users are created before the hubs start. Otherwise the hubs would receive all memberships as changes.
            try stage.makeUsers(most)
            let race = try RlsRace(policy, stage, settings)
            defer { race.close() }
            for size in sizes { results += try race.run(size) }
        }
        if settings.includes("join storm") { results.append(try JoinStorm(stage, settings).run()) }
        return results
    }
}

/// Comparison of one policy with a growing number of subscribers. The contestants are a hub with clients in its
/// process, a hub with sockets, and the peer (PostgreSQL).
private final class RlsRace {
    private let policy: RlsPolicy
    private let stage: RlsStage
    private let settings: BenchSettings
    /// Hub that serves clients in its own process.
    private let playing: RlsHub
    /// Clients in the process of the hub `playing`.
    private let played: PlayedClients
    /// Hub that serves clients with sockets.
    private let serving: RlsHub
    /// Rates with one client without a socket.
    private var alone: Samples?

    private struct Rates {
        var played = Samples()
        var served = Samples()
        var peer = Samples()
    }

    init(_ policy: RlsPolicy, _ stage: RlsStage, _ settings: BenchSettings) throws {
        self.policy = policy
        self.stage = stage
        self.settings = settings
        playing = try stage.startHub(policy)
        played = PlayedClients(playing)
        serving = try stage.startHub(policy)
    }

    func close() {
        stage.end(playing)
        stage.end(serving)
    }

    func run(_ size: Int) throws -> [BenchResult] {
        do {
            return try measured(size)
        } catch let failure as BenchFailure {
            throw BenchFailure("\(policy.caseName(size)): \(failure.message)", hint: failure.hint)
        }
    }

    private func measured(_ size: Int) throws -> [BenchResult] {
        settings.progress("\(policy.caseName(size)): they join")
        try played.grow(to: size) { stage.introduction($0, policy) }
        let sockets = size <= 5000 ? try SocketClients(size, stage, serving) : nil
        defer { sockets?.close() }
        _ = try sockets?.join(policy)
        for hub in [playing, serving] { try stage.awaitPolicy(policy, hub) }
        // This round is a warm-up that checks every message.
        _ = try measure(size, sockets, wantsFrames: true)
        var rates = Rates()
        let rounds = settings.rounds(usually: 5)
        for round in 0..<rounds {
            settings.progress("\(policy.caseName(size)): round \(round + 1) of \(rounds)")
            let (playedRate, servedRate, peerRate) = try measure(size, sockets, peerFirst: round % 2 == 1)
            rates.played.add(playedRate)
            if let servedRate { rates.served.add(servedRate) }
            rates.peer.add(peerRate)
        }
        _ = try measure(size, sockets, wantsFrames: true)
        if size == 1 { alone = rates.played }
        return results(size, rates)
    }

    /// Measures one round. Returns the changes per second of the hub with clients in its process (`played`), of the hub
    /// with sockets (`served`) and of the peer.
    private func measure(
        _ size: Int, _ sockets: SocketClients?, peerFirst: Bool = false, wantsFrames: Bool = false
    ) throws -> (played: Double, served: Double?, peer: Double) {
        playing.hold()
        serving.hold()
        let changes = try stage.write(
            policy, policy.changes(subscribers: size, isQuick: settings.isQuick), subscribers: size)
        try stage.awaitLog(playing)
        try stage.awaitLog(serving)
        var peer = peerFirst ? try measurePeer(changes, size) : 0
        let playedTime = try played.receive(changes, isForAll: policy.isForAll, wantsFrames: wantsFrames)
        let servedTime = try sockets?.receive(changes, isForAll: policy.isForAll)
        if sockets == nil { serving.goOn() }
        if !peerFirst { peer = try measurePeer(changes, size) }
        let count = Double(changes.count) * 1e9
        return (count / Double(playedTime), servedTime.map { count / Double($0) }, peer)
    }

    private func measurePeer(_ changes: Range<Int64>, _ size: Int) throws -> Double {
        let count = policy.peerChanges(subscribers: size, isQuick: settings.isQuick)
        return try stage.measurePeer(policy, changes.prefix(count), subscribers: size)
    }

    // MARK: Results

    private func results(_ size: Int, _ rates: Rates) -> [BenchResult] {
        var results = [
            result(
                size, "changes, sockets excluded", rates.played, policy.baseline, rates.peer,
                policy.target(subscribers: size))
        ]
        if rates.served.count > 0 {
            results.append(result(size, "changes, sockets included", rates.served, policy.baseline, rates.peer, nil))
        }
        if size == 100_000, !policy.isForAll, let alone {
            results.append(
                result(size, "changes, sockets excluded", rates.played, "the hub with 1 subscriber", alone, 0.5))
        }
        return results
    }

    private func result(
        _ size: Int, _ metric: String, _ values: Samples, _ baseline: String, _ baselineValues: Samples,
        _ target: Double?
    ) -> BenchResult {
        BenchResult(
            scenario: "rls", caseName: policy.caseName(size), metric: metric, unit: "1/s", values: values,
            baseline: .init(baseline, baselineValues), target: target.map { .ratioAtLeast($0) })
    }
}

/// Benchmark of the time until many clients that connect simultaneously are all subscribed to a table whose policy
/// reads a membership table.
private struct JoinStorm {
    private let stage: RlsStage
    private let settings: BenchSettings

    init(_ stage: RlsStage, _ settings: BenchSettings) {
        self.stage = stage
        self.settings = settings
    }

    func run() throws -> BenchResult {
        let count = settings.isQuick ? 500 : 10_000
        try stage.makeUsers(count)
        let hub = try stage.startHub(.membership)
        defer { stage.end(hub) }
        var seconds = Samples()
        let rounds = settings.rounds(usually: 5)
        for round in 0..<rounds {
            settings.progress("join storm: round \(round + 1) of \(rounds)")
            let clients = try SocketClients(count, stage, hub)
            defer { clients.close() }
            seconds.add(Double(try clients.join(.membership)) / 1e9)
        }
        return BenchResult(
            scenario: "rls", caseName: "join storm, \(count) subscribers", metric: "until all are subscribed",
            unit: "s",
            values: seconds, target: .valueAtMost(5), isLessBetter: true)
    }
}
