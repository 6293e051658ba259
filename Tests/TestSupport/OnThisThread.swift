import Synchronization
import System

/// Runs asynchronous work to its end on the calling thread. A test that suspends would have to wait for a thread of
/// Swift's pool, and other tests block these threads for minutes.
public func onThisThread<Value: Sendable>(_ work: @escaping @Sendable () async throws -> Value) throws -> Value {
    let executor = OwnExecutor()
    Task(executorPreference: executor) {
        do {
            executor.finish(.success(try await work()))
        } catch {
            executor.finish(.failure(error))
        }
    }
    let answer: Result<any Sendable, any Error> = executor.run()
    guard let value = try answer.get() as? Value else { preconditionFailure("it ends with what its work returns") }
    return value
}

/// Executor whose jobs run on the thread that calls `run()`.
final class OwnExecutor: TaskExecutor {
    private struct State {
        var jobs: [UnownedJob] = []
        var answer: Result<any Sendable, any Error>?
    }

    private let state = Mutex(State())
    private let pulse = Pulse()

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        state.withLock { $0.jobs.append(job) }
        pulse.beat()
    }

    func finish(_ answer: Result<any Sendable, any Error>) {
        state.withLock { $0.answer = answer }
        pulse.beat()
    }

    func run() -> Result<any Sendable, any Error> {
        while true {
            let seen = pulse.value
            let (jobs, answer) = state.withLock { state in
                defer { state.jobs = [] }
                return (state.jobs, state.answer)
            }
            for job in jobs { job.runSynchronously(on: asUnownedTaskExecutor()) }
            if let answer, jobs.isEmpty { return answer }
            if jobs.isEmpty {
                _ = pulse.wait(beyond: seen, untilMonotonic: Clock.monotonicNanoseconds() + 1_000_000_000)
            }
        }
    }
}
