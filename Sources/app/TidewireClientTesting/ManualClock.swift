import Synchronization
import TidewireClient

/// A clock that moves only when the test moves it. Calls that become due are made on the thread that moves the clock.
public final class ManualClock: ClientClock, Sendable {
    private struct Alarm {
        let due: Duration
        let perform: @Sendable () -> Void
    }

    private struct State {
        var now = Duration.zero
        var alarms: [Alarm] = []
    }

    private let state = Mutex(State())

    /// Creates a clock whose time is zero.
    public init() {}

    /// Time that the clock shows.
    public var now: Duration { state.withLock { $0.now } }

    /// Calls `perform` once when the clock reaches that time.
    package func wake(at moment: Duration, _ perform: @escaping @Sendable () -> Void) {
        state.withLock { $0.alarms.append(Alarm(due: moment, perform: perform)) }
    }

    /// Moves the clock forward. Calls that become due are made in the order of their times.
    public func advance(by duration: Duration) {
        let end = now + duration
        while let perform = next(until: end) { perform() }
        state.withLock { $0.now = end }
    }

    private func next(until end: Duration) -> (@Sendable () -> Void)? {
        state.withLock { state in
            guard let index = state.alarms.indices.min(by: { state.alarms[$0].due < state.alarms[$1].due }),
                state.alarms[index].due <= end
            else { return nil }
            let alarm = state.alarms.remove(at: index)
            state.now = max(state.now, alarm.due)
            return alarm.perform
        }
    }
}
