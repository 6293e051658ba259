import Diagnostics
import Synchronization

/// Callback that receives the answer to a question, exactly once. A second answer is reported as a bug. If the question
/// is forgotten, the callback receives the answer for unanswered questions.
public final class Reply<Answer: Sendable>: Sendable {
    private let room: Impossible.Room
    private let unanswered: @Sendable () -> Answer
    private let then: @Sendable (Answer) -> Void
    private let isAnswered = Atomic<Bool>(false)

    /// Creates a reply.
    ///
    /// - Parameters:
    ///   - unanswered: the answer that `then` receives if there is no real one.
    ///   - then: receives the answer, on the thread that has it. It must not block.
    public init(
        in room: Impossible.Room, unanswered: @autoclosure @escaping @Sendable () -> Answer,
        then: @escaping @Sendable (Answer) -> Void
    ) {
        self.room = room
        self.unanswered = unanswered
        self.then = then
    }

    public func give(_ answer: Answer) {
        guard !isAnswered.exchange(true, ordering: .acquiringAndReleasing) else {
            return Impossible.happened("a question is answered once", in: room)
        }
        then(answer)
    }

    /// Passes the answer for unanswered questions to the callback.
    public func giveUp() { give(unanswered()) }

    deinit {
        if isAnswered.load(ordering: .acquiring) { return }
        Impossible.happened("a question is answered before it is forgotten", in: room)
        then(unanswered())
    }
}
