import Foundation
import Glibc
import Synchronization
import System
import TidewireClient

/// Benchmark of the processor time and memory that `TidewireClient`, the library for apps, costs an app.
struct ClientScenario: Scenario {
    let name = "client"
    let summary = "The Swift client: reading rows, handing over batches, and memory of a query that is idle."
    let discussion = """
        Everything is in one process: a server that is played says what the hub would have written, without sockets, and \
        the client does all that it does in an app. "rows": transactions of 100 rows of nine columns, from the message's \
        text to the app's own type (its query's queue, the order of commits and the position included), processor time \
        of the whole process. "batches": transactions of one row, each handed over at once, by the clock. "idle": \
        queries with a filter each on one connection, resident memory, the server's few bytes among it.

        The baseline is a bare loop: JSONDecoder over the same texts into the same columns (dates left as text, which is \
        in its favour), for batches with an AsyncStream behind it. Every row's number is checked.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        var results: [BenchResult] = []
        for contest in [Contest.rows, .batches] where settings.includes("\(contest)") {
            results.append(try race(contest, settings))
        }
        if settings.includes("idle") { results.append(try idle(settings)) }
        return results
    }

    private func race(_ contest: Contest, _ settings: BenchSettings) throws -> BenchResult {
        let count = settings.isQuick ? 2000 : 100_000
        var (ours, plain) = (Samples(), Samples())
        for round in 0..<settings.rounds(usually: 7) {
            settings.progress("\(contest): round \(round + 1)")
            let (live, bare) = try waiting { try await contest.round(count) }
            ours.add(live)
            plain.add(bare)
        }
        return BenchResult(
            scenario: name, caseName: "\(contest)", metric: contest == .rows ? "from text to row" : "handed over",
            unit: contest == .rows ? "ns/row" : "batches/s", values: ours, baseline: .init("JSONDecoder", plain),
            target: .ratioAtLeast(0.8), isLessBetter: contest == .rows)
    }

    private func idle(_ settings: BenchSettings) throws -> BenchResult {
        let count = settings.isQuick ? 100 : 2000
        var bytes = Samples()
        // The clients of all rounds are kept. Otherwise the allocator would reuse their memory in the next round.
        var kept: [(Tidewire, [LiveChanges<BenchedExpense>.Iterator])] = []
        defer { for (tidewire, _) in kept { tidewire.signOut() } }
        for round in 0..<settings.rounds(usually: 5) {
            settings.progress("idle: round \(round + 1)")
            let (server, before) = (PlayedServer(), ResidentMemory.bytes)
            let tidewire = server.client()
            let queries = (0..<count).map { number in
                tidewire.live(BenchedExpense.self, where: \.version == number, snapshot: false).makeAsyncIterator()
            }
            let deadline = Clock.monotonicNanoseconds() + 60_000_000_000
            while server.channels < count, Clock.monotonicNanoseconds() < deadline { usleep(10_000) }
            guard server.channels == count else {
                throw BenchFailure("void (client): \(server.channels) of \(count) queries were asked for")
            }
            bytes.add(Double(ResidentMemory.bytes - before) / Double(count))
            kept.append((tidewire, queries))
        }
        return BenchResult(
            scenario: name, caseName: "idle, \(count) queries", metric: "resident memory", unit: "B/query",
            values: bytes, target: .valueAtMost(16_384), isLessBetter: true)
    }
}

extension PlayedServer {
    fileprivate func client() -> Tidewire {
        Tidewire(
            url: URL(string: "ws://bench.test") ?? URL(fileURLWithPath: "/"), key: "key", token: "token",
            seams: TidewireSeams(transport: self))
    }
}

/// Comparison of an app that has one query with a bare loop. Both get the same messages.
private enum Contest: Sendable {
    case rows
    case batches

    /// Number of messages that the server sends before the app must have read them. The client's queue has room for
    /// more.
    private static let portion = 2000

    /// Runs the app and the bare loop. Returns the nanoseconds per row, or the batches per second, of each.
    func round(_ count: Int) async throws -> (live: Double, bare: Double) {
        let server = PlayedServer()
        let tidewire = server.client()
        defer { tidewire.signOut() }
        let gathered = BatchWindow(quietTime: .milliseconds(1), maximumDelay: .milliseconds(1))
        var batches = tidewire.live(
            BenchedExpense.self, window: self == .rows ? gathered : .immediate, snapshot: false
        ).makeAsyncIterator()
        while let batch = await batches.next(), !batch.isCaughtUp {}
        let messages = try server.messages(count, rowsInCommit: self == .rows ? 100 : 1)
        var stopwatch = Stopwatch()
        for start in stride(from: 0, to: count, by: Self.portion) {
            let portion = messages[start..<min(start + Self.portion, count)]
            server.say(portion)
            let end = stopwatch.rows + portion.count
            while stopwatch.rows < end, let batch = await batches.next() {
                stopwatch.batches += 1
                for change in batch.changes { try stopwatch.saw(change.row?.version) }
            }
        }
        let live = figure(stopwatch)
        return (live, figure(try await bare(messages)))
    }

    private func figure(_ stopwatch: Stopwatch) -> Double {
        switch self {
        case .rows: stopwatch.processorNanoseconds / Double(stopwatch.rows)
        case .batches: Double(stopwatch.batches) * 1e9 / stopwatch.nanoseconds
        }
    }

    private func bare(_ messages: [String]) async throws -> Stopwatch {
        let decoder = JSONDecoder()
        var stopwatch = Stopwatch()
        for start in stride(from: 0, to: messages.count, by: Self.portion) {
            let portion = messages[start..<min(start + Self.portion, messages.count)]
            let (stream, rows) = AsyncStream.makeStream(of: PlainExpense.self)
            for text in portion {
                let row = try decoder.decode(PlainFrame.self, from: Data(text.utf8)).row
                if self == .rows { try stopwatch.saw(row.version) } else { rows.yield(row) }
            }
            rows.finish()
            for await row in stream {
                stopwatch.batches += 1
                try stopwatch.saw(row.version)
            }
        }
        return stopwatch
    }
}

/// Counter of received rows, with the elapsed time and the processor time since its creation. It checks that rows
/// arrive in the order in which they were sent.
private struct Stopwatch {
    private let began = Clock.monotonicNanoseconds()
    private let used = Clock.processNanoseconds()
    private(set) var rows = 0
    var batches = 0

    var nanoseconds: Double { Double(Clock.monotonicNanoseconds() - began) }
    var processorNanoseconds: Double { Double(Clock.processNanoseconds() - used) }

    mutating func saw(_ number: Int?) throws {
        rows += 1
        guard number == rows else {
            throw BenchFailure("void (client): row \(number.map(String.init) ?? "none") came as number \(rows)")
        }
    }
}

/// Runs asynchronous code and blocks until it returns a result. A scenario runs on its own thread, a client's queries
/// run in tasks.
private func waiting<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) throws -> Value {
    let answer = Mutex<Result<Value, any Error>?>(nil)
    let isThere = DispatchSemaphore(value: 0)
    Task.detached {
        do {
            let value = try await body()
            answer.withLock { $0 = .success(value) }
        } catch {
            answer.withLock { $0 = .failure(error) }
        }
        isThere.signal()
    }
    isThere.wait()
    guard let result = answer.withLock({ $0 }) else { throw BenchFailure("void (client): nothing was answered") }
    return try result.get()
}
