import System

/// Benchmark of presence.
struct PresenceScenario: Scenario {
    let name = "presence"
    let summary = "1,000 members of one topic track and leave: until all views are equal, and what a difference costs."
    let discussion = """
        Members join one topic and track a presence each. Clients put together, from the state they are given and the \
        differences that follow, what each of them sees; it is checked by sums over keys and refs, and there are no figures unless every \
        view came to be right, and all the same.

        All at once: 1,000 members track together, then half of them leave together; the time is from the first one's \
        asking until the last view is right. The hub is as it comes (a loop for each processor, nothing pinned). The baseline is \
        the bare server, which sends one message for each that came or left to each member: what is to be done where \
        differences are not merged.

        One at a time: members track, each when all have seen the one before, so that every difference is one message to every \
        member. Time of the hub's one loop a delivery, beside the bare server's sending of the same \
        messages, both on the first processor; and with 500 and 1,000 members beside that with 250: where a \
        difference costs in proportion to the members it goes to, that is the same.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        settings.progress("starting a private PostgreSQL")
        let stage = try ServingStage(place)
        defer { stage.close() }
        var results: [BenchResult] = []
        if settings.includes("all at once") { results += try PresenceStorm(stage, place, settings).run(settings) }
        if settings.includes("one at a time") { results += try PresenceSteps(stage, place, settings).run(settings) }
        return results
    }
}

/// Hub of the benchmark `presence`, whose clients track and leave a presence.
private final class PresenceLane {
    let hub: HubProcess
    private let stage: ServingStage
    private let place: Workplace
    private let isPinned: Bool
    private var topics = 0

    init(_ table: String, _ stage: ServingStage, _ place: Workplace, loops: Int) throws {
        self.stage = stage
        self.place = place
        isPinned = loops == 1
        try stage.makeTable(table)
        hub = try stage.startHub(table, loops: loops, TalkLane.unlimited)
        if isPinned { try ProcessorPin.put([hub.processID], on: ProcessorPin.servers) }
    }

    deinit { stage.end(hub) }

    /// Creates clients and joins them to a new topic.
    func members(_ count: Int) throws -> LoadFleet {
        topics += 1
        let fleet = try LoadFleet(clients: count, inOneProcess: true, errors: place.path + "/clients.log")
        if isPinned { try ProcessorPin.put(fleet.processIDs, on: ProcessorPin.clients) }
        try fleet.heartbeat(seconds: 0)
        try fleet.connect(port: hub.port, path: stage.path)
        try fleet.watch(keys: "user-{n:6}")
        try fleet.join(
            topic: "realtime:crowd:\(topics)",
            payload:
                #"{"config":{"broadcast":{"self":false},"presence":{"enabled":true,"key":"user-{n:6}"},"private":false}}"#
        )
        return fleet
    }

    /// Payload of a member's presence. The bare server's clients search for its numbers.
    static let payload = #"{"name":"member {n:6}","seq":1,"at":1767225600000000,"online_at":"2026-01-01T00:00:00Z"}"#
}

extension PresenceOutcome {
    fileprivate func check(_ what: String) throws -> PresenceOutcome {
        guard isFaultless else {
            throw BenchFailure(
                "void (presence, \(what)): \(unsettled) views did not become right, \(differing) differ, "
                    + "\(messages) messages came, "
                    + "\(malformed) messages mean nothing, \(closed) clients lost their connection")
        }
        return self
    }
}

// MARK: All at once

/// Comparison in which many clients track a presence simultaneously, and then half of them leave simultaneously.
private final class PresenceStorm {
    private let lane: PresenceLane
    private let bareAll: BareFanout
    private let bareHalf: BareFanout
    private let count: Int
    /// Measurements while all members track a presence.
    private var coming = (hub: Samples(), bare: Samples(), messages: Samples())
    /// Measurements while half of the members leave.
    private var going = (hub: Samples(), bare: Samples(), messages: Samples())

    init(_ stage: ServingStage, _ place: Workplace, _ settings: BenchSettings) throws {
        count = settings.isQuick ? 40 : 1000
        lane = try PresenceLane("presence_storm", stage, place, loops: 0)
        bareAll = try BareFanout(clients: count, errors: place.path + "/bare.log")
        bareHalf = try BareFanout(clients: count / 2, errors: place.path + "/bare.log")
    }

    deinit {
        bareAll.close()
        bareHalf.close()
    }

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let template = try warmUp()
        let rounds = settings.rounds(usually: 3)
        for round in 0..<rounds {
            settings.progress("\(count) members at once: round \(round + 1) of \(rounds)")
            if round % 2 == 1 { try measureHub() }
            coming.bare.add(try bareMilliseconds(bareAll, messages: count, template))
            going.bare.add(try bareMilliseconds(bareHalf, messages: count / 2, template))
            if round % 2 == 0 { try measureHub() }
        }
        return results("\(count) members all at once, tracking", coming)
            + results("\(count / 2) of \(count) members all at once, leaving", going)
    }

    /// Makes the hub send some presence messages before the measurement. Returns one of them, the difference message
    /// for one member, as a sample.
    private func warmUp() throws -> String {
        let fleet = try lane.members(count)
        defer { fleet.close() }
        _ = try fleet.track(1, together: false, payload: PresenceLane.payload).check("warming up")
        return ChangeTemplate.text(of: try fleet.sample())
    }

    private func measureHub() throws {
        let fleet = try lane.members(count)
        defer { fleet.close() }
        let came = try fleet.track(count, together: true, payload: PresenceLane.payload).check("tracking")
        try checkAgain(fleet)
        let went = try fleet.depart(count / 2).check("leaving")
        coming.hub.add(Double(came.nanoseconds) / 1e6)
        coming.messages.add(Double(came.messages) / Double(count))
        going.hub.add(Double(went.nanoseconds) / 1e6)
        going.messages.add(Double(went.messages) / Double(count))
    }

    /// Checks after a pause that no further message has made the clients' views of presence wrong.
    private func checkAgain(_ fleet: LoadFleet) throws {
        Pause.milliseconds(50)
        _ = try fleet.track(0, together: true, payload: "{}").check("tracking")
    }

    private func bareMilliseconds(_ bare: BareFanout, messages: Int, _ template: String) throws -> Double {
        let began = Clock.unixMicroseconds()
        let (_, report) = try bare.send(messages, template: template)
        return Double(max(1, report.lastMicroseconds - began)) / 1000
    }

    private func results(_ name: String, _ of: (hub: Samples, bare: Samples, messages: Samples)) -> [BenchResult] {
        [
            BenchResult(
                scenario: "presence", caseName: name, metric: "until all views are equal", unit: "ms", values: of.hub,
                baseline: .init("bare send() of each change", of.bare), isLessBetter: true),
            BenchResult(
                scenario: "presence", caseName: name, metric: "messages to a member", unit: "", values: of.messages),
        ]
    }
}

// MARK: One at a time

private final class PresenceSteps {
    private struct Series {
        let members: Int
        let bareServer: BareFanout
        var hub = Samples()
        var bare = Samples()
    }

    private let lane: PresenceLane
    private let steps: Int
    private var all: [Series] = []

    init(_ stage: ServingStage, _ place: Workplace, _ settings: BenchSettings) throws {
        steps = settings.isQuick ? 10 : 100
        lane = try PresenceLane("presence_steps", stage, place, loops: 1)
        for members in settings.isQuick ? [10, 20] : [250, 500, 1000] {
            let bare = try BareFanout(clients: members, errors: place.path + "/bare.log")
            try bare.pin()
            all.append(Series(members: members, bareServer: bare))
        }
    }

    deinit { for series in all { series.bareServer.close() } }

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let rounds = settings.rounds(usually: 7)
        var template = ""
        _ = try measureHub(all[0].members, &template)
        for round in 0..<rounds {
            settings.progress("members one at a time: round \(round + 1) of \(rounds)")
            for index in all.indices {
                if round % 2 == 1 { all[index].hub.add(try measureHub(all[index].members, &template)) }
                let (cost, _) = try all[index].bareServer.send(steps, template: template)
                all[index].bare.add(Double(cost.processorNanoseconds) / Double(cost.deliveries) / 1000)
                if round % 2 == 0 { all[index].hub.add(try measureHub(all[index].members, &template)) }
            }
        }
        return all.flatMap(results)
    }

    /// Returns the microseconds of the loop's processor time per delivery.
    private func measureHub(_ members: Int, _ template: inout String) throws -> Double {
        let fleet = try lane.members(members)
        defer { fleet.close() }
        Pause.milliseconds(20)
        let before = try lane.hub.use()
        let outcome = try fleet.track(steps, together: false, payload: PresenceLane.payload).check("one at a time")
        guard outcome.messages == Int64(steps * members) else {
            throw BenchFailure(
                "void (presence, one at a time): \(outcome.messages) messages came where \(steps * members) should")
        }
        template = ChangeTemplate.text(of: try fleet.sample())
        Pause.milliseconds(20)
        return try lane.hub.use().nanoseconds(since: before, threads: "loop-") / Double(outcome.messages) / 1000
    }

    private func results(_ series: Series) -> [BenchResult] {
        let name = "\(series.members) members one at a time"
        func result(_ baseline: String, _ values: Samples, _ target: Double?) -> BenchResult {
            BenchResult(
                scenario: "presence", caseName: name, metric: "loop's time a delivery", unit: "us",
                values: series.hub, baseline: .init(baseline, values), target: target.map { .ratioAtLeast($0) },
                isLessBetter: true)
        }
        let beside = result("bare send()", series.bare, nil)
        guard let first = all.first, first.members != series.members else { return [beside] }
        return [beside, result("with \(first.members) members", first.hub, 0.8)]
    }
}
