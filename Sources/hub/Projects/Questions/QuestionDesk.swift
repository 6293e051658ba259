import Diagnostics
import Synchronization
import System
import WebSocket

/// Queue of questions to logs. A few are answered at the same time, because they take processor time and disk from
/// clients.
final class QuestionDesk: Sendable {
    typealias Answer = @Sendable (HTTPResponse) -> Void

    private struct Waiting: Sendable {
        let run: @Sendable () -> HTTPResponse
        let answer: Answer
    }

    private struct State {
        var waiting: [Waiting] = []
        var isClosed = false
        /// Paths of logs beside which answers may be kept.
        var logs: Set<String> = []
    }

    private let state = Mutex(State())
    private let pulse = Pulse()
    private let threads = Mutex<[BackgroundThread]>([])

    /// Starts the threads. Must be called on the main thread: a thread shares the descriptor table of the thread that
    /// starts it, and each socket loop has its own.
    init() throws(SystemError) {
        var threads: [BackgroundThread] = []
        for _ in 0..<Limits.questionsAtOnce {
            threads.append(try BackgroundThread("questions") { [self] in work() })
        }
        let started = threads
        self.threads.withLock { $0 = started }
    }

    /// Queues a question about the log at the path. Its answer may be kept beside that log.
    func ask(beside log: String, _ run: @escaping @Sendable () -> HTTPResponse, then answer: @escaping Answer) {
        let isTaken = state.withLock { state in
            guard !state.isClosed, state.waiting.count < Limits.maximumWaitingLogQuestions else { return false }
            state.waiting.append(Waiting(run: run, answer: answer))
            state.logs.insert(log)
            return true
        }
        if isTaken {
            pulse.beat()
        } else {
            answer(.message(.serviceUnavailable, "the hub answers other questions, or is ending: try again"))
        }
    }

    private func work() {
        var seen: UInt64 = 0
        while true {
            let (next, isClosed) = state.withLock { ($0.waiting.isEmpty ? nil : $0.waiting.removeFirst(), $0.isClosed) }
            if let next {
                next.answer(isClosed ? TenantsAPI.failed("the hub is ending") : next.run())
            } else if isClosed {
                return
            } else {
                let isKept = state.withLock { !$0.logs.isEmpty }
                let rest = isKept ? Limits.answerLifetime.wholeNanoseconds : 3_600_000_000_000
                let before = seen
                seen = pulse.wait(beyond: seen, untilMonotonic: Clock.monotonicNanoseconds() + rest)
                if isKept, seen == before { sweep() }
            }
        }
    }

    /// Removes kept answers that were not fetched in time. Called when no question has arrived for a while.
    private func sweep() {
        for log in state.withLock({ $0.logs }) {
            let isLeft = (try? AnswerSpool(besideLog: log))?.sweep(at: Clock.unixMicroseconds() / 1_000_000) ?? false
            if !isLeft { state.withLock { _ = $0.logs.remove(log) } }
        }
    }

    /// Refuses waiting questions and waits for those that are being answered. No question is accepted after this.
    func close() {
        state.withLock { $0.isClosed = true }
        pulse.beat()
        for thread in threads.withLock({ $0 }) { thread.join() }
        let isDone = state.withLock { $0.waiting.isEmpty }
        assert(isDone, "every question is answered before the desk closes")
    }
}
