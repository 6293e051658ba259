import System

/// Benchmark of joining channels.
struct JoinsScenario: Scenario {
    let name = "joins"
    let summary = "10,000 users join at the same time, a public channel or a private one that a policy guards."
    let discussion = """
        Starts a private PostgreSQL with Supabase's schemas and a hub as it comes. 10,000 users with a token each, which \
        the hub has not seen before, are connected and send their joins all at once; the time is from the first join until the last \
        reply. Each is a member of one of 1,000 rooms; the policy of realtime.messages looks that up in a table. The hub, the database and the \
        clients share the machine.

        Baselines, in turns. Private: what the reference does for each join, in the one session that it has for this: a \
        transaction that inserts a row, sets the claims, looks whether the row can be seen, and is rolled back. Public: the bare \
        server's sending of the same replies to as many sockets, which reads no join and checks no token.

        All must be joined, and a user who is no member must be refused; else there are no figures.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        let users = settings.isQuick ? 200 : 10_000
        settings.progress("starting a private PostgreSQL")
        let stage = try JoinsStage(place, users: users)
        defer { stage.close() }
        let race = try JoinsRace(stage, place, users: users)
        defer { race.close() }
        try race.checkOutsider()
        return try race.run(settings)
    }
}

private final class JoinsRace {
    private let stage: JoinsStage
    private let hub: HubProcess
    private let bare: BareFanout
    private let users: Int
    private var rounds = 0
    private var joined = (open: Samples(), guarded: Samples())
    private var seconds = (open: Samples(), guarded: Samples())
    private var replies = Samples()
    private var peer = Samples()

    init(_ stage: JoinsStage, _ place: Workplace, users: Int) throws {
        self.stage = stage
        self.users = users
        hub = try stage.startHub()
        bare = try BareFanout(clients: users, errors: place.path + "/bare.log")
    }

    func close() {
        bare.close()
        hub.stop()
    }

    /// Checks that the hub refuses a user who is not a member of any room.
    func checkOutsider() throws {
        do {
            try join(1, isPrivate: true, numbered: "999999999999")
        } catch let failure as BenchFailure where failure.message.contains("Unauthorized") {
            return
        }
        throw BenchFailure("void (joins): somebody joined who may not")
    }

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let count = settings.rounds(usually: 5)
        for round in 0..<count {
            settings.progress("\(users) users: round \(round + 1) of \(count)")
            if round % 2 == 1 { try measureHub() }
            peer.add(try stage.measurePeer(min(users, 1000)))
            replies.add(try measureReplies())
            if round % 2 == 0 { try measureHub() }
        }
        return results("\(users) public joins", joined.open, seconds.open, "bare send() of replies", replies, nil)
            + results(
                "\(users) private joins", joined.guarded, seconds.guarded, "a transaction a join", peer,
                .valueAtLeast(3000))
    }

    private func measureHub() throws {
        let open = Double(try join(users, isPrivate: false, numbered: "{n:12}")) / 1e9
        joined.open.add(Double(users) / open)
        seconds.open.add(open)
        let guarded = Double(try join(users, isPrivate: true, numbered: "{n:12}")) / 1e9
        joined.guarded.add(Double(users) / guarded)
        seconds.guarded.add(guarded)
    }

    /// Joins clients to their channels. Returns the nanoseconds until all have received their reply.
    @discardableResult
    private func join(_ count: Int, isPrivate: Bool, numbered digits: String) throws -> Int64 {
        rounds += 1
        let fleet = try LoadFleet(clients: count, errors: stage.clientErrors)
        defer { fleet.close() }
        try fleet.heartbeat(seconds: 0)
        try fleet.sign(secret: stage.secret, claims: JoinsStage.claims(round: rounds, numbered: digits))
        try fleet.connect(port: hub.port, path: stage.path)
        try fleet.window(count)
        return try fleet.join(
            topic: JoinsStage.topic(numbered: "{n%\(JoinsStage.rooms)}"),
            payload: #"{"config":{"broadcast":{"ack":false,"self":false},"presence":{"enabled":false},"#
                + #""postgres_changes":[],"private":\#(isPrivate)},"access_token":"{token}"}"#)
    }

    private static let reply = #"[null,null,"realtime:room:123","postgres_changes",{"seq":{seq},"at":{at}}]"#

    private func measureReplies() throws -> Double {
        let began = Clock.unixMicroseconds()
        let (_, report) = try bare.send(1, template: Self.reply)
        return Double(users) * 1e6 / Double(max(1, report.lastMicroseconds - began))
    }

    private func results(
        _ name: String, _ rate: Samples, _ seconds: Samples, _ baseline: String, _ values: Samples, _ target: Target?
    ) -> [BenchResult] {
        [
            BenchResult(
                scenario: "joins", caseName: name, metric: "joins", unit: "1/s", values: rate,
                baseline: .init(baseline, values), target: target),
            BenchResult(scenario: "joins", caseName: name, metric: "until the last reply", unit: "s", values: seconds),
        ]
    }
}
