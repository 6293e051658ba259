import Synchronization

/// A queue from which one task at a time takes elements.
final class Mailbox<Element: Sendable>: Sendable {
    private struct State {
        var waiting: [Element] = []
        var first = 0
        var isFinished = false
        var taker: CheckedContinuation<Element?, Never>?
        /// Number of elements that the last waiting element stands for because there was no space; otherwise 0.
        var missed = 0

        var count: Int { waiting.count - first }

        mutating func take() -> Element? {
            guard first < waiting.count else { return nil }
            defer {
                first += 1
                if first == waiting.count { (waiting, first) = ([], 0) }
            }
            return waiting[first]
        }
    }

    private let state = Mutex(State())

    var count: Int { state.withLock { $0.count } }
    var isFinished: Bool { state.withLock { $0.isFinished } }

    func put(_ element: Element) {
        let taker = state.withLock { state -> CheckedContinuation<Element?, Never>? in
            guard !state.isFinished else { return nil }
            guard let taker = state.taker else {
                state.waiting.append(element)
                state.missed = 0
                return nil
            }
            state.taker = nil
            return taker
        }
        taker?.resume(returning: element)
    }

    /// Puts an element if fewer than `limit` wait. Otherwise drops it, and the last waiting element says how many have
    /// been dropped in its place.
    func put(_ element: Element, limit: Int, missed: (Int) -> Element) {
        let isDropped = state.withLock { state in
            guard state.count >= limit, !state.isFinished else { return false }
            state.missed += 1
            if state.missed > 1 { state.waiting.removeLast() }
            state.waiting.append(missed(state.missed))
            return true
        }
        if !isDropped { put(element) }
    }

    /// Ends the queue. Waiting elements can still be taken unless `discarding` is true; later ones are ignored.
    func finish(discarding: Bool) {
        let taker = state.withLock { state in
            state.isFinished = true
            if discarding { (state.waiting, state.first) = ([], 0) }
            defer { state.taker = nil }
            return state.taker
        }
        taker?.resume(returning: nil)
    }

    func empty() { state.withLock { ($0.waiting, $0.first) = ([], 0) } }

    /// Returns the first element at once; nil if there is none.
    func takeNow() -> Element? { state.withLock { $0.take() } }

    /// Waits for the next element; nil if the queue has ended or the task is cancelled.
    func take() async -> Element? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let answer = state.withLock { state -> Element?? in
                    if let element = state.take() { return .some(element) }
                    if state.isFinished || Task.isCancelled { return .some(nil) }
                    state.taker = continuation
                    return nil
                }
                if let answer { continuation.resume(returning: answer) }
            }
        } onCancel: {
            finish(discarding: true)
        }
    }
}
