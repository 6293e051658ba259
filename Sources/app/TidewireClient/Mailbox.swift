import Synchronization

/// Queue of elements that tasks wait for. Each element goes to one task. Waiting tasks get elements in the order in
/// which they began to wait.
final class Mailbox<Element: Sendable>: Sendable {
    private struct Taker {
        let number: Int
        let continuation: CheckedContinuation<Element?, Never>
    }

    private struct State {
        var waiting: [Element] = []
        var first = 0
        var isFinished = false
        var takers: [Taker] = []
        var lastTaker = 0
        /// Number of dropped elements that the last waiting element reports; 0 if it is an ordinary element.
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
        let taker = state.withLock { state -> Taker? in
            guard !state.isFinished else { return nil }
            guard !state.takers.isEmpty else {
                state.waiting.append(element)
                state.missed = 0
                return nil
            }
            return state.takers.removeFirst()
        }
        taker?.continuation.resume(returning: element)
    }

    /// Puts an element if fewer than `limit` elements wait. Otherwise drops it, and `missed(count)` becomes the last
    /// waiting element, which reports how many were dropped.
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

    /// Ends the queue. Elements put later are ignored. With `discarding` the waiting elements are dropped; otherwise
    /// tasks can still take them.
    func finish(discarding: Bool) {
        let takers = state.withLock { state in
            state.isFinished = true
            if discarding { (state.waiting, state.first) = ([], 0) }
            defer { state.takers = [] }
            return state.takers
        }
        for taker in takers { taker.continuation.resume(returning: nil) }
    }

    /// Drops all waiting elements.
    func empty() { state.withLock { ($0.waiting, $0.first) = ([], 0) } }

    /// Removes and returns the first element without waiting; nil if there is none.
    func takeNow() -> Element? { state.withLock { $0.take() } }

    /// Waits for the next element, removes it and returns it. Returns nil if the queue has ended or the task is
    /// cancelled.
    ///
    /// - Parameter endsQueue: true if cancelling the task ends the whole queue, also for other tasks.
    func take(cancellationEndsQueue endsQueue: Bool = true) async -> Element? {
        let number = state.withLock { state in
            state.lastTaker += 1
            return state.lastTaker
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let answer = state.withLock { state -> Element?? in
                    // The queue's elements remain for other tasks.
                    if !endsQueue, Task.isCancelled { return .some(nil) }
                    if let element = state.take() { return .some(element) }
                    if state.isFinished || Task.isCancelled { return .some(nil) }
                    state.takers.append(Taker(number: number, continuation: continuation))
                    return nil
                }
                if let answer { continuation.resume(returning: answer) }
            }
        } onCancel: {
            if endsQueue { finish(discarding: true) } else { cancel(number) }
        }
    }

    private func cancel(_ number: Int) {
        let taker = state.withLock { state in
            state.takers.firstIndex { $0.number == number }.map { state.takers.remove(at: $0) }
        }
        taker?.continuation.resume(returning: nil)
    }
}
