import Foundation
import Glibc
import System
import TidewireClient

/// Settings of a soak test.
public struct SoakSettings: Sendable {
    public var seed: UInt64 = 1
    public var seconds = 300
    /// Number of users of each app.
    public var users = 50
    public var directory = "/var/tmp"
    public var progress: @Sendable (String) -> Void = { _ in }

    public init() {}
}

/// Result of a soak test.
public struct SoakReport: Sendable {
    public internal(set) var seed: UInt64 = 0
    public internal(set) var seconds = 0
    public internal(set) var users = 0
    /// Number of actions that the users performed.
    public internal(set) var deeds = 0
    /// Number of the users' actions that failed.
    public internal(set) var refusals = 0
    public internal(set) var faults: [(fault: String, times: Int)] = []
    /// Number of rows that were compared at the end.
    public internal(set) var rows = 0
    /// Seconds from the end of all faults until the comparison of the apps with the database ended; nil if the apps did
    /// not settle.
    public internal(set) var settledAfter: Double?
    public internal(set) var differences: [String] = []

    public var isSound: Bool { differences.isEmpty && settledAfter != nil }
}

/// Soak test, `tidewire bench soak`: users of five apps act while faults happen. At the end, each app must show the
/// rows that its person may SELECT.
@MainActor
public final class Soak {
    private static let settling: Duration = .seconds(240)
    private static let shown = 40

    private let settings: SoakSettings
    private let place: Workplace
    private let database: SoakDatabase
    private let hub: SoakHub
    private let proxy: FaultyProxy
    private var seats: [SoakSeat] = []
    private var report = SoakReport()
    private var troubles: [Task<Void, Never>] = []
    private var counts: [String: Int] = [:]

    public static func run(_ settings: SoakSettings) async throws -> SoakReport {
        DescriptorTable.raiseLimit()
        let soak = try Soak(settings)
        defer { soak.close() }
        try await soak.populate()
        return try await soak.run()
    }

    private init(_ settings: SoakSettings) throws {
        self.settings = settings
        place = try Workplace(below: settings.directory, for: "soak")
        var generator = SystemRandomNumberGenerator()
        let secret = (0..<4).map { _ in String(generator.next() as UInt64, radix: 36) }.joined()
        database = try SoakDatabase(directory: place.path + "/postgres", secret: secret)
        hub = try SoakHub(database, place: place.path)
        try hub.start()
        proxy = try FaultyProxy(hubPort: hub.port)
    }

    private func close() {
        for seat in seats { seat.killApp() }
        proxy.close()
        hub.close()
        database.close()
    }

    // MARK: Users

    private func populate() async throws {
        settings.progress("\(5 * settings.users) users of five apps")
        let people = (0..<settings.users).map { _ in UUID() }
        try await make("profiles (user_id, username)", people) { "'\($0)', '\($0)'" }
        try await make("users (id, full_name)", people) { "'\($0)', 'somebody'" }
        try await make("staff (id, name)", people) { "'\($0)', 'somebody'" }
        let operations = (0..<max(1, settings.users / 10)).map { _ in UUID() }
        try await make("operations (id, name, created_by)", operations) { "'\($0)', 'search', '\(people[0])'" }
        let listings = (0..<max(1, settings.users / 5)).map { "l\($0)" }
        try await make("listings (id, address)", listings) { "'\($0)', 'street \($0)'" }
        let port = proxy.port
        for (index, person) in people.enumerated() {
            let operation = operations[index % operations.count]
            _ = try await database.ask("INSERT INTO operation_members VALUES ('\(operation)', '\(person)')")
            seats += [
                ExpenseSeat(database, people[index / 2], port: port),
                MapSeat(database, person, port: port, operation: operation),
                FeedSeat(database, person, port: port, others: people),
                ListingSeat(database, person, port: port, listing: listings[index % listings.count]),
                FriendSeat(database, person, port: port, others: people),
            ]
        }
        for seat in seats { seat.launch() }
        guard try await settles(within: .seconds(120)) else {
            throw BenchFailure("the apps were not all live within two minutes: \(states)")
        }
    }

    private func make<Key>(_ table: String, _ keys: [Key], _ values: (Key) -> String) async throws {
        let rows = keys.map { "(\(values($0)))" }.joined(separator: ", ")
        _ = try await database.ask("INSERT INTO \(table) VALUES \(rows)")
    }

    private var states: String {
        var counts: [String: Int] = [:]
        for seat in seats where !seat.hasSettled {
            counts[
                "\(type(of: seat)) \(seat.client.state), \(seat.writes.pendingWrites.isEmpty ? "all" : "not all") written",
                default: 0] += 1
        }
        return counts.sorted { $0.key < $1.key }.prefix(12).map { "\($0.value) \($0.key)" }.joined(separator: "; ")
    }

    // MARK: Actions

    private func run() async throws -> SoakReport {
        (report.seed, report.seconds, report.users) = (settings.seed, settings.seconds, settings.users)
        let end = ContinuousClock.now + .seconds(settings.seconds)
        let trouble = Task { await makeTrouble(until: end) }
        var chance = VerifyChance(settings.seed, lane: 1)
        var next = ContinuousClock.now
        while ContinuousClock.now < end {
            if let seat = seats.randomElement(using: &chance), seat.isLaunched {
                report.deeds += 1
                do { try await seat.act(&chance) } catch { report.refusals += 1 }
            }
            next = max(next + .milliseconds(30), ContinuousClock.now - .milliseconds(300))
            try await Task.sleep(until: next)
        }
        await trouble.value
        for trouble in troubles { await trouble.value }
        settings.progress("everything is mended; what is shown is held against the database")
        try await judge()
        report.faults = counts.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        return report
    }

    /// True if all apps have received everything within this time.
    private func settles(within limit: Duration) async throws -> Bool {
        let deadline = ContinuousClock.now + limit
        while ContinuousClock.now < deadline {
            if seats.allSatisfy(\.hasSettled) { return true }
            try await Task.sleep(for: .milliseconds(100))
        }
        return false
    }

    /// Compares the rows of each app with those of the database until they agree. Changes in flight get time to arrive,
    /// but no further action of a user is needed.
    private func judge() async throws {
        let began = ContinuousClock.now
        for seat in seats {
            seat.isOnline = true
            seat.client.updateNetwork(isReachable: true)
            seat.client.enterForeground()
            seat.renewToken()
        }
        guard try await settles(within: Self.settling) else {
            report.differences = ["not all are live and written: \(states)"]
            return
        }
        var open = seats
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            var (still, differences): ([SoakSeat], [String]) = ([], [])
            for seat in open {
                let found = try await seat.differences()
                if found.isEmpty { report.rows += seat.shown().count } else { still.append(seat) }
                differences += found
            }
            open = still
            report.differences = Array(differences.prefix(Self.shown))
            if open.isEmpty || ContinuousClock.now > deadline { break }
            try await Task.sleep(for: .milliseconds(500))
        }
        report.settledAfter = (ContinuousClock.now - began) / .seconds(1)
    }

    // MARK: Faults

    private enum Trouble: String, CaseIterable {
        case cut, held, slow, swallowed, hubKilled, hubStopped, background, noNetwork, apiAway, tokenEnds, appKilled,
            gap
    }

    private func makeTrouble(until end: ContinuousClock.Instant) async {
        var chance = VerifyChance(settings.seed, lane: 2)
        while ContinuousClock.now < end {
            guard let trouble = Trouble.allCases.randomElement(using: &chance) else { return }
            // A gap in the hub's history makes all apps start anew, so only one in eight of the drawn gaps happens.
            if trouble == .gap, chance.number(0...7) > 0 { continue }
            settings.progress("\(trouble.rawValue)")
            counts[trouble.rawValue, default: 0] += 1
            await make(trouble, &chance)
            try? await Task.sleep(for: .milliseconds(chance.number(1000...4000)))
        }
    }

    private func make(_ trouble: Trouble, _ chance: inout VerifyChance) async {
        let seed = chance.next()
        let some = seats.filter { _ in chance.number(0...5) == 0 }
        let seconds = chance.number(1...8)
        switch trouble {
        case .cut: proxy.order(.cut, oneIn: 3, seed: seed)
        case .held: proxy.order(.hold(milliseconds: seconds * 500), oneIn: 3, seed: seed)
        case .slow: proxy.order(.slow(milliseconds: seconds * 500, pauseMilliseconds: 20), oneIn: 3, seed: seed)
        case .swallowed: proxy.order(.swallow(milliseconds: seconds * 200), oneIn: 4, seed: seed)
        case .hubKilled: await restartHub(SIGKILL, pause: seconds * 300)
        case .hubStopped: await restartHub(SIGTERM, pause: seconds * 100)
        case .gap: await restartHub(SIGKILL, pause: 500, meanwhile: SoakHub.dropSlot)
        case .background:
            for seat in some { seat.client.enterBackground() }
            // In one case of four, the app stays in the background for longer than its connection stays open.
            later(chance.number(0...3) == 0 ? 35 : seconds) { for seat in some { seat.client.enterForeground() } }
        case .noNetwork:
            for seat in some { seat.client.updateNetwork(isReachable: false) }
            proxy.order(.cut, oneIn: 4, seed: seed)
            later(seconds) { for seat in some { seat.client.updateNetwork(isReachable: true) } }
        case .apiAway:
            for seat in some { seat.isOnline = false }
            later(seconds) { for seat in some { seat.isOnline = true } }
        case .tokenEnds:
            for seat in some { seat.renewToken(seconds: 2) }
            later(seconds) { for seat in some { seat.renewToken() } }
        case .appKilled:
            for seat in some.prefix(10) { seat.killApp() }
            later(1) { for seat in some.prefix(10) { seat.launch() } }
        }
    }

    /// Performs an action after this number of seconds.
    private func later(_ seconds: Int, _ deed: @escaping @MainActor @Sendable () -> Void) {
        troubles.append(
            Task {
                try? await Task.sleep(for: .seconds(seconds))
                deed()
            })
    }

    private func restartHub(_ signal: Int32, pause: Int, meanwhile sql: String? = nil) async {
        await blocking { [hub] in hub.end(signal) }
        if let sql {
            for _ in 0..<50 where (try? await database.ask(sql)) == nil {
                try? await Task.sleep(for: .milliseconds(50))
            }
        }
        try? await Task.sleep(for: .milliseconds(pause))
        for _ in 0..<5 {
            let isStarted = await blocking { [hub] in (try? hub.start()) != nil }
            if isStarted { return }
        }
    }

    /// Runs blocking work on a thread of its own, so that the main actor does not block.
    private func blocking<Value: Sendable>(_ work: @escaping @Sendable () -> Value) async -> Value {
        await withCheckedContinuation { continuation in
            Thread.detachNewThread { continuation.resume(returning: work()) }
        }
    }
}
