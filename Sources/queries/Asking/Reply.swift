import Diagnostics
import Synchronization

/// The way back to whoever asked. A question is answered once: what comes later is no answer to anything, and what is
/// forgotten is given up.
public final class Reply<Answer: Sendable>: Sendable {
    private let room: Impossible.Room
    private let unanswered: @Sendable () -> Answer
    private let then: @Sendable (Answer) -> Void
    private let isAnswered = Atomic<Bool>(false)

    /// - Parameters:
    ///   - unanswered: what is said where there is no answer.
    ///   - then: takes the one answer, on whatever thread there is one, and waits for nothing.
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
