import Glibc
import Synchronization
import System
import Testing

/// Time limit for each test of a suite. A test that takes longer ends the whole run, which prints the test's name and
/// the stack of every thread. Nothing else ends a test that blocks its thread.
///
/// Swift Testing's own limit counts from the moment when a test could run, but many tests wait minutes for their turn
/// (`inTurn`).
public struct RunningTimeLimit: SuiteTrait, TestTrait, TestScoping {
    let minutes: Int
    let isOfChain: Bool

    public var isRecursive: Bool { true }

    @concurrent public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable @concurrent () async throws -> Void
    ) async throws {
        try await inTurn(isInChain: isOfChain) {
            let number = RunningTests.began("\(test.id)", minutes: minutes)
            defer { RunningTests.ended(number) }
            try await function()
        }
    }
}

extension Trait where Self == RunningTimeLimit {
    /// Limits each test of the suite, and each of its arguments.
    public static func within(minutes: Int) -> Self { RunningTimeLimit(minutes: minutes, isOfChain: false) }

    /// Limits long suites, and suites of suites, in which one test runs at a time.
    public static func inChain(minutes: Int) -> Self { RunningTimeLimit(minutes: minutes, isOfChain: true) }
}

/// Running tests, each with its deadline.
struct RunningTests {
    private var running: [Int: (name: String, began: UInt64, deadline: UInt64)] = [:]
    private var next = 0

    mutating func begin(_ name: String, at now: UInt64 = 0, deadline: UInt64) -> Int {
        next += 1
        running[next] = (name, now, deadline)
        return next
    }

    /// Removes a test, and returns its name and the time at which it began.
    @discardableResult
    mutating func end(_ number: Int) -> (name: String, began: UInt64)? {
        running.removeValue(forKey: number).map { ($0.name, $0.began) }
    }

    /// Returns the names of tests that are past their deadlines.
    func overdue(at now: UInt64) -> [String] {
        running.values.filter { $0.deadline <= now }.map(\.name).sorted()
    }

    private static let ofThisProcess = Mutex(RunningTests())
    private static let watch = try? BackgroundThread("test watch") {
        while true {
            BackgroundThread.rest(nanoseconds: 1_000_000_000)
            let overdue = ofThisProcess.withLock { $0.overdue(at: Clock.monotonicNanoseconds()) }
            if let name = overdue.first { fatalError("\(name) has run for longer than its suite allows") }
        }
    }

    /// Factor by which a loaded machine may be slower than an idle one, for which the limits are meant.
    private static let slowest: UInt64 = 3

    static func began(_ name: String, minutes: Int) -> Int {
        precondition(watch != nil, "the watch runs")
        let now = Clock.monotonicNanoseconds()
        let deadline = now + UInt64(minutes) * slowest * 60_000_000_000
        return ofThisProcess.withLock { $0.begin(name, at: now, deadline: deadline) }
    }

    static func ended(_ number: Int) {
        guard let ended = ofThisProcess.withLock({ $0.end(number) }), let times else { return }
        let milliseconds = (Clock.monotonicNanoseconds() - ended.began) / 1_000_000
        let line = Array("\(milliseconds) \(ended.name)\n".utf8)
        _ = line.withUnsafeBytes { write(times, $0.baseAddress, $0.count) }
    }

    /// File that receives each test's running time in milliseconds, without the wait for its turn: `TEST_TIMES=FILE`.
    private static let times = getenv("TEST_TIMES").map { open($0, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644) }
}
