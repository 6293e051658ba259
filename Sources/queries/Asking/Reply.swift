import Diagnostics
import Synchronization

/// Callback for the answer to a question. It is called exactly once: a second answer is reported as a bug, and a
/// forgotten question counts as unanswered.
public final class Reply<Answer: Sendable>: Sendable {
    private let room: Impossible.Room
    private let unanswered: @Sendable () -> Answer
    private let then: @Sendable (Answer) -> Void
    private let isAnswered = Atomic<Bool>(false)

    /// - Parameters:
    ///   - unanswered: answer that is given if there is no real one.
    ///   - then: receives the one answer, on the thread that has it, and must not wait.
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

    public func giveUp() { give(unanswered()) }

    deinit {
        if isAnswered.load(ordering: .acquiring) { return }
        Impossible.happened("a question is answered before it is forgotten", in: room)
        then(unanswered())
    }
}
