import System

/// Benchmark of broadcasts between clients.
struct BroadcastScenario: Scenario {
    let name = "broadcast"
    let summary = "Users in an echo channel and one of six, 2 messages/s to each; payloads of 1, 10 and 50 KB."
    let discussion = """
        The published pattern: each user is in a channel of its own and in one of six users, hears itself in both, and \
        says two messages a second in each, in the binary form of JS and Swift: for every message that a user says in \
        the second channel six are delivered, so each user hears 14 a second. The hub has one loop, on the first \
        processor; its users are in one process on the last one, and speak at even moments, no two of a channel one behind \
        the other. A step of some seconds is sustained when 99 of 100 messages are heard within 200 ms of the moment \
        they were due (not of when the clients came round to saying them). The number of users is doubled until \
        it is not sustained, then bisected to 5 %, and taken back by 5 % until a longer step is. Beside it stands what the clients \
        themselves used of their processor: where that is near 100 % the hub may sustain more.

        Then, at that number of users and at half of it, in turns: the users talk; and a bare server, which \
        is one thread that calls send() for each delivery, with the hub's own message and as many sockets, and does nothing else. \
        Deliveries are counted against the processor time of the hub's loop, which beside sending receives, unmasks, reads and routes, \
        and of the bare server's sending.

        Payloads: ten channels of six users; each says its next message when its last one has come back, so the hub is \
        never idle. A message is delivered to six; the bare server sends the same messages to sixty sockets.

        Every user checks that each message of each speaker came once, in order, in its channel and whole; else there \
        are no figures. Rate limits are off.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        settings.progress("starting a private PostgreSQL")
        let stage = try ServingStage(place)
        defer { stage.close() }
        var results: [BenchResult] = []
        if settings.includes("users") {
            let race = try UserRace(stage, place, settings)
            defer { race.close() }
            results += try race.run(settings)
        }
        let sizes = [1, 10, 50].filter { settings.includes(PayloadRace.caseName($0)) }
        if !sizes.isEmpty {
            let race = try PayloadRace(stage, place, settings)
            defer { race.close() }
            for size in sizes { results += try race.run(size, settings) }
        }
        return results
    }
}

// MARK: Users

/// Search for the number of users whose broadcasts one loop of the hub sustains, and measurement of their cost.
private final class UserRace {
    private static let group = 6
    private static let bytes = 300
    private static let intervalMicroseconds = 500_000
    private static let highestP99 = 200.0

    private let lane: TalkLane
    private let place: Workplace
    private let most: Int
    private let isQuick: Bool
    private let progress: @Sendable (String) -> Void

    init(_ stage: ServingStage, _ place: Workplace, _ settings: BenchSettings) throws {
        self.place = place
        isQuick = settings.isQuick
        progress = settings.progress
        most = settings.isQuick ? 120 : 18_000
        settings.progress("\(most) users of a hub")
        lane = try TalkLane("users", stage, place, clients: most, groups: [1, Self.group])
    }

    func close() { lane.close() }

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        // The first talk is a warm-up. It also gives a sample of the hub's message for the bare server.
        _ = try talk(most / 10, messages: 2)
        let users = try confirmed(try search())
        let template = ChangeTemplate.text(of: try lane.sample())
        var full = TalkSeries()
        var half = TalkSeries()
        let rounds = settings.rounds(usually: 5)
        progress("\(users) users of the bare server")
        let bare = try BareFanout(clients: users, errors: place.path + "/bare.log")
        defer { bare.close() }
        try bare.pin()
        for round in 0..<rounds {
            progress("\(users) users: round \(round + 1) of \(rounds)")
            let hubIsFirst = round % 2 == 1
            if !hubIsFirst { try measure(bare, users, template, &full, &half) }
            full.hub.append(try talk(users, messages: isQuick ? 2 : 5))
            half.hub.append(try talk(rounded(users / 2), messages: isQuick ? 2 : 4))
            if hubIsFirst { try measure(bare, users, template, &full, &half) }
        }
        try full.checkSizes()
        return full.results(users, isSustained: true) + half.results(rounded(users / 2), isSustained: false)
    }

    private func measure(
        _ bare: BareFanout, _ users: Int, _ template: String, _ full: inout TalkSeries, _ half: inout TalkSeries
    ) throws {
        let cost = try bare.talk(messages: max(4, 100_000 / users), template)
        full.bare.append(cost)
        half.bare.append(cost)
    }

    private func talk(_ users: Int, messages: Int) throws -> TalkCost {
        try lane.talk(
            bytes: Self.bytes, intervalMicroseconds: isQuick ? 100_000 : Self.intervalMicroseconds, count: messages,
            speakers: rounded(users))
    }

    /// Returns the number of users, reduced to whole groups.
    private func rounded(_ users: Int) -> Int { max(Self.group, users / Self.group * Self.group) }

    private func isSustained(_ users: Int, messages: Int) throws -> Bool {
        let cost = try talk(users, messages: messages)
        progress(
            "\(users) users: p99 \(Int(cost.p99)) ms, hub \(Int(cost.loopShare)) %, clients \(Int(cost.clientShare)) %")
        return cost.p99 < Self.highestP99
    }

    /// Returns the highest number of users that the hub sustains. Searches first by doubling, then by bisection.
    private func search() throws -> Int {
        var low = 0
        var high = rounded(isQuick ? 60 : 1500)
        let messages = isQuick ? 2 : 5
        while try isSustained(high, messages: messages) {
            low = high
            if high == rounded(most) { return high }
            high = min(rounded(most), high * 2)
        }
        while high - low > max(Self.group, high / 20) {
            let middle = rounded((low + high) / 2)
            if try isSustained(middle, messages: messages) { low = middle } else { high = middle }
        }
        guard low > 0 else { throw BenchFailure("not even \(high) users are heard in time") }
        return low
    }

    /// Repeats the measurement for a number of users in a longer step, because the search may have been lucky. Reduces
    /// the number until the hub sustains it, and returns it.
    private func confirmed(_ found: Int) throws -> Int {
        var users = found
        while try !isSustained(users, messages: isQuick ? 2 : 10) {
            guard users > Self.group else { throw BenchFailure("not even \(users) users are heard in time") }
            users = rounded(users * 19 / 20)
        }
        return users
    }
}

/// Costs of broadcasts for the hub and the bare server, one for each round.
struct TalkSeries {
    var hub: [TalkCost] = []
    var bare: [TalkCost] = []

    func samples(_ costs: [TalkCost], _ path: KeyPath<TalkCost, Double>) -> Samples {
        Samples(costs.map { $0[keyPath: path] })
    }

    /// Checks that messages of the hub and of the bare server have the same size. Only the digits of numbers may
    /// differ.
    func checkSizes() throws {
        let (one, other) = (samples(hub, \.bytesPerDelivery).median, samples(bare, \.bytesPerDelivery).median)
        guard (one - other).magnitude < 12 else {
            throw BenchFailure("the bare server does not send as many bytes as the hub: \(other), \(one)")
        }
    }

    func ratio(
        _ caseName: String, _ metric: String, _ unit: String, _ path: KeyPath<TalkCost, Double>, target: Double?
    ) -> BenchResult {
        BenchResult(
            scenario: "broadcast", caseName: caseName, metric: metric, unit: unit, values: samples(hub, path),
            baseline: .init("bare send()", samples(bare, path)), target: target.map { .ratioAtLeast($0) })
    }

    private func value(
        _ caseName: String, _ metric: String, _ unit: String, _ path: KeyPath<TalkCost, Double>,
        target: Target? = nil
    ) -> BenchResult {
        BenchResult(
            scenario: "broadcast", caseName: caseName, metric: metric, unit: unit, values: samples(hub, path),
            target: target)
    }

    func results(_ users: Int, isSustained: Bool) -> [BenchResult] {
        let name = isSustained ? "users on one loop, as many as it sustains" : "users on one loop, half as many"
        return [
            BenchResult(
                scenario: "broadcast", caseName: name, metric: "users", unit: "",
                values: Samples(hub.map { _ in Double(users) })),
            value(name, "p50", "ms", \.p50),
            value(name, "p99", "ms", \.p99, target: .valueAtMost(200)),
            ratio(
                name, "deliveries a second of the loop's time", "1/s", \.deliveriesPerProcessorSecond, target: 0.75),
            value(name, "processor, the hub's loop", "%", \.loopShare),
            value(name, "processor, clients", "%", \.clientShare),
        ]
    }
}

// MARK: Payloads

/// Comparison of the hub and the bare server for large messages to six receivers.
private final class PayloadRace {
    private static let group = 6

    private let lane: TalkLane
    private let bare: BareFanout
    private let users: Int
    private let isQuick: Bool

    static func caseName(_ kilobytes: Int) -> String { "payload of \(kilobytes) KB, 6 receivers" }

    init(_ stage: ServingStage, _ place: Workplace, _ settings: BenchSettings) throws {
        isQuick = settings.isQuick
        users = settings.isQuick ? 12 : 60
        lane = try TalkLane("payload", stage, place, clients: users, groups: [Self.group])
        bare = try BareFanout(clients: users, errors: place.path + "/bare.log")
        try bare.pin()
    }

    func close() {
        bare.close()
        lane.close()
    }

    func run(_ kilobytes: Int, _ settings: BenchSettings) throws -> [BenchResult] {
        let bytes = kilobytes * 1000
        let count = isQuick ? 4 : max(10, 300_000_000 / (users * Self.group * bytes))
        _ = try lane.talk(bytes: bytes, intervalMicroseconds: 0, count: 4, speakers: users)
        let template = ChangeTemplate.text(of: try lane.sample())
        var series = TalkSeries()
        let rounds = settings.rounds(usually: 5)
        for round in 0..<rounds {
            settings.progress("\(Self.caseName(kilobytes)): round \(round + 1) of \(rounds)")
            let hubIsFirst = round % 2 == 1
            if !hubIsFirst { series.bare.append(try bare.talk(messages: count * Self.group, template)) }
            series.hub.append(
                try lane.talk(bytes: bytes, intervalMicroseconds: 0, count: count, speakers: users))
            if hubIsFirst { series.bare.append(try bare.talk(messages: count * Self.group, template)) }
        }
        try series.checkSizes()
        let name = Self.caseName(kilobytes)
        return [
            series.ratio(name, "bytes a second of the loop's time", "B/s", \.bytesPerProcessorSecond, target: 0.8),
            series.ratio(name, "bytes a second, as clients read", "B/s", \.bytesPerSecond, target: nil),
        ]
    }
}
