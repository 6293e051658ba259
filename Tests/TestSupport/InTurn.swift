import Glibc
import Synchronization
import System

/// Does what a test does on a thread of its own, as one of those that run at the same time; others wait for their turn without
/// a thread.
///
/// - Parameter isInChain: others can only run behind it. Such go first: behind the others a chain would wait for all of them at each
///   of its links, and be left over alone.
func inTurn(isInChain: Bool, _ work: @Sendable () async throws -> Void) async throws {
    guard !Turns.isOne else { return try await work() }
    await Turns.ofThisProcess.take(isInChain: isInChain)
    defer { Turns.ofThisProcess.pass() }
    try await Turns.$isOne.withValue(true) {
        let executor = OwnExecutor()
        // It runs what the test suspends for as well, until it has ended.
        let thread = try BackgroundThread("test") { _ = executor.run() }
        defer { thread.join() }
        defer { executor.finish(.success(())) }
        try await withTaskExecutorPreference(executor) { try await work() }
    }
}

/// How many tests run at once. Most wait for a server or a client most of their time, and block a thread meanwhile: the pool's,
/// one for each processor, would leave half of the machine idle.
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

    /// So many have no turn yet.
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
