import Glibc
import Synchronization
import System

/// Runs a test on its own thread. The number of tests that run at once is limited. A waiting test uses no thread.
///
/// - Parameter isInChain: true if other tests can only run after this one. Such tests go first: otherwise a chain of
///   tests would wait for all others at each of its links, and would run alone at the end.
func inTurn(isInChain: Bool, _ work: @Sendable () async throws -> Void) async throws {
    guard !Turns.isOne else { return try await work() }
    await Turns.ofThisProcess.take(isInChain: isInChain)
    defer { Turns.ofThisProcess.pass() }
    try await Turns.$isOne.withValue(true) {
        let executor = OwnExecutor()
        // The thread also runs the test's continuations, until the test has ended.
        let thread = try BackgroundThread("test") { _ = executor.run() }
        defer { thread.join() }
        defer { executor.finish(.success(())) }
        try await withTaskExecutorPreference(executor) { try await work() }
    }
}

/// Limit on tests that run at once. Most tests wait for a server or a client, and block their thread while they wait.
/// Swift's thread pool has one thread for each processor, so it would leave half of the machine idle.
final class Turns: Sendable {
    @TaskLocal static var isOne = false
    static let ofThisProcess = Turns(asked ?? 2 * Processors.count)

    private static var asked: Int? { getenv("TESTS_AT_ONCE").flatMap { Int(String(cString: $0)) } }

    private struct Line {
        private var waiting: [CheckedContinuation<Void, Never>] = []
        private var next = 0

        var count: Int { waiting.count - next }

        mutating func append(_ continuation: CheckedContinuation<Void, Never>) { waiting.append(continuation) }

        mutating func first() -> CheckedContinuation<Void, Never>? {
            guard next < waiting.count else { return nil }
            next += 1
            return waiting[next - 1]
        }
    }

    private struct State {
        var free: Int
        var chains = Line()
        var others = Line()
    }

    private let state: Mutex<State>

    init(_ count: Int) { state = Mutex(State(free: count)) }

    /// Number of tests that still wait for their turn.
    var waitingCount: Int { state.withLock { $0.chains.count + $0.others.count } }

    func take(isInChain: Bool) async {
        await withCheckedContinuation { continuation in
            let isFree = state.withLock { state in
                guard state.free == 0 else {
                    state.free -= 1
                    return true
                }
                if isInChain { state.chains.append(continuation) } else { state.others.append(continuation) }
                return false
            }
            if isFree { continuation.resume() }
        }
    }

    func pass() {
        let next: CheckedContinuation<Void, Never>? = state.withLock { state in
            let next = state.chains.first() ?? state.others.first()
            if next == nil { state.free += 1 }
            return next
        }
        next?.resume()
    }
}
