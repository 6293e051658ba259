import Diagnostics
import Synchronization
import System
import WebSocket

/// Queue of operators' questions to logs with a few threads that answer them. Their number is small, because answers
/// take processor time and disk reads from the service of clients.
///
/// Operators take turns: the next question is that of the operator who has waited longest for a turn. An operator with
/// many questions therefore does not delay others.
final class QuestionDesk: Sendable {
    typealias Answer = @Sendable (HTTPResponse) -> Void

    /// Limits of a desk, and its text for questions beyond them.
    struct Size {
        let threads: Int
        /// Maximum number of questions of all operators, waiting ones and those being answered.
        let most: Int
        /// Maximum number of questions of one operator, waiting ones and those being answered.
        let mostOfOne: Int
        /// Sentence in the answer to a question that is refused.
        let refusal: String

        static let questions = Size(
            threads: Limits.questionsAtOnce, most: 4 * Limits.maximumWaitingLogQuestions + Limits.questionsAtOnce,
            mostOfOne: 2 * Limits.maximumWaitingLogQuestions,
            refusal: "the hub answers other questions, or is ending: try again")
        static let streams = Size(
            threads: FollowRun.mostAtOnce, most: FollowRun.mostAtOnce, mostOfOne: FollowRun.mostAtOnce / 2,
            refusal: "the hub sends as many streams as it can, or is ending: try again later")
    }

    private struct Waiting: Sendable {
        /// Computes the answer; nil if the client has already received it.
        let run: @Sendable () -> HTTPResponse?
        let answer: Answer
        let asker: String
    }

    /// Waiting questions of each operator, with the number of those that are being answered.
    struct Turns<Question> {
        private var queues: [String: [Question]] = [:]
        /// Names of the operators with waiting questions, in the order of their turns.
        private var order: [String] = []
        private var atWork: [String: Int] = [:]
        private(set) var count = 0

        var isEmpty: Bool { order.isEmpty }

        /// Adds a question. Returns false if a limit is reached.
        mutating func add(_ question: Question, of asker: String, most: Int, mostOfOne: Int) -> Bool {
            let own = (queues[asker]?.count ?? 0) + (atWork[asker] ?? 0)
            guard count < most, own < mostOfOne else { return false }
            if queues[asker] == nil { order.append(asker) }
            queues[asker, default: []].append(question)
            count += 1
            return true
        }

        /// Removes and returns the next question: one of the operator whose turn it is. It counts for the operator
        /// until `finish`.
        mutating func next() -> Question? {
            guard !order.isEmpty else { return nil }
            let asker = order.removeFirst()
            guard var queue = queues.removeValue(forKey: asker), !queue.isEmpty else { return nil }
            let question = queue.removeFirst()
            if !queue.isEmpty {
                queues[asker] = queue
                order.append(asker)
            }
            atWork[asker, default: 0] += 1
            assert(order.count == queues.count, "whoever waits has a turn")
            return question
        }

        mutating func finish(_ asker: String) {
            let left = (atWork[asker] ?? 1) - 1
            atWork[asker] = left > 0 ? left : nil
            count -= 1
            assert(count >= 0, "a question is finished once")
        }
    }

    private struct State {
        var turns = Turns<Waiting>()
        var isClosed = false
        /// Paths of the logs beside which files with answers may lie.
        var logs: Set<String> = []
    }

    private let state = Mutex(State())
    private let pulse = Pulse()
    private let threads = Mutex<[BackgroundThread]>([])
    private let size: Size

    var isClosed: Bool { state.withLock { $0.isClosed } }

    /// Starts the threads. Must be called on the main thread: a thread shares the descriptor table of the thread that
    /// starts it, and each socket loop has its own.
    init(_ size: Size) throws(SystemError) {
        self.size = size
        var threads: [BackgroundThread] = []
        for _ in 0..<size.threads {
            threads.append(try BackgroundThread("questions") { [self] in work() })
        }
        let started = threads
        self.threads.withLock { $0 = started }
    }

    /// Queues `run`, which answers a question, and passes its answer to `answer`. If the desk is full or closed,
    /// answers with a refusal.
    ///
    /// - Parameter log: path of the log beside which files with answers may be kept; nil if none is kept.
    func ask(
        beside log: String?, for asker: String, _ run: @escaping @Sendable () -> HTTPResponse?,
        then answer: @escaping Answer
    ) {
        let isTaken = state.withLock { state in
            guard !state.isClosed,
                state.turns.add(
                    Waiting(run: run, answer: answer, asker: asker), of: asker, most: size.most,
                    mostOfOne: size.mostOfOne)
            else { return false }
            if let log { state.logs.insert(log) }
            return true
        }
        if isTaken {
            pulse.beat()
        } else {
            answer(.message(.serviceUnavailable, size.refusal))
        }
    }

    private func work() {
        var seen: UInt64 = 0
        while true {
            let (next, isClosed) = state.withLock { ($0.turns.next(), $0.isClosed) }
            if let next {
                if let response = isClosed ? TenantsAPI.failed("the hub is ending") : next.run() {
                    next.answer(response)
                }
                state.withLock { $0.turns.finish(next.asker) }
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

    /// Removes files with answers that were not fetched in time. A thread calls it when no question has arrived for a
    /// while.
    private func sweep() {
        for log in state.withLock({ $0.logs }) {
            let isLeft = (try? AnswerSpool(besideLog: log))?.sweep(at: Clock.unixMicroseconds() / 1_000_000) ?? false
            if !isLeft { state.withLock { _ = $0.logs.remove(log) } }
        }
    }

    /// Refuses waiting questions and waits for those that are being answered. The desk refuses all later questions.
    func close() {
        state.withLock { $0.isClosed = true }
        pulse.beat()
        for thread in threads.withLock({ $0 }) { thread.join() }
        let isDone = state.withLock { $0.turns.isEmpty }
        assert(isDone, "every question is answered before the desk closes")
    }
}
