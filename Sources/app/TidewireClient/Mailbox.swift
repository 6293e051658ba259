import Synchronization

/// What waits for somebody to take it, one thing after the other. One taker at a time.
final class Mailbox<Element: Sendable>: Sendable {
    private struct State {
        var waiting: [Element] = []
        var first = 0
        var isFinished = false
        var taker: CheckedContinuation<Element?, Never>?

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
                return nil
            }
            state.taker = nil
            return taker
        }
        taker?.resume(returning: element)
    }

    /// What waits is still taken; nothing comes behind it.
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

    /// At once, if something is there.
    func takeNow() -> Element? { state.withLock { $0.take() } }

    /// Nil when there is nothing more, or the task is cancelled.
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
