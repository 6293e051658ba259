import Diagnostics
import Synchronization
import System

/// Queues of work, one for each project. A project's work runs in order, and does not wait for other projects.
///
/// Any thread may add work, to run now or at a given time. A project has a thread only while it has work.
final class ProjectLanes: Sendable {
    /// Work that is called once. `isGivenUp` is true if it must not be done, because the hub is ending, busy or out of
    /// threads.
    typealias Work = @Sendable (_ isGivenUp: Bool) -> Void

    fileprivate struct Lane {
        var waiting: [Work] = []
        var hasThread = false
    }

    fileprivate struct State {
        var lanes: [String: Lane] = [:]
        /// Scheduled work by project, with its monotonic time in nanoseconds.
        var later: [String: (at: UInt64, work: Work)] = [:]
        var isClosed = false
    }

    private let state = Mutex(State())
    private let pulse = Pulse()
    private let thread = Mutex<BackgroundThread?>(nil)

    /// Starts the dispatching thread. Must be called on the main thread: a thread shares the descriptor table of the
    /// thread that starts it, and each socket loop has its own.
    init() throws(SystemError) {
        let thread = try BackgroundThread("projects") { [self] in dispatch() }
        self.thread.withLock { $0 = thread }
    }

    /// Adds work of a project. If the queue is full or closed, calls the work as given up.
    func add(_ name: String, _ work: @escaping Work) {
        let isTaken = state.withLock { $0.take(name, work) }
        if isTaken { pulse.beat() } else { work(true) }
    }

    /// Schedules work at a monotonic time in nanoseconds, replacing the project's earlier scheduled work.
    func add(_ name: String, atMonotonic time: UInt64, _ work: @escaping Work) {
        state.withLock { state in
            if !state.isClosed { state.later[name] = (time, work) }
        }
        pulse.beat()
    }

    /// Gives up work that has not begun, and waits for work that has.
    func close() {
        state.withLock { state in
            state.isClosed = true
            state.later = [:]
        }
        pulse.beat()
        thread.withLock { $0.take() }?.join()
    }

    private func dispatch() {
        var seen: UInt64 = 0
        while true {
            let (names, next, isDone) = state.withLock { state in
                let now = Clock.monotonicNanoseconds()
                for (name, planned) in state.later where planned.at <= now {
                    state.later[name] = nil
                    _ = state.take(name, planned.work)
                }
                let names = state.lanes.filter { !$0.value.hasThread }.map(\.key)
                for name in names {
                    assert(state.lanes[name]?.waiting.isEmpty == false, "a lane without a thread has work")
                    state.lanes[name]?.hasThread = true
                }
                assert(!state.isClosed || state.later.isEmpty, "nothing is scheduled after the end")
                let next = state.later.values.map(\.at).min() ?? now + 3_600_000_000_000
                return (names, next, state.isClosed && state.lanes.isEmpty)
            }
            if isDone { return }
            for name in names { begin(name) }
            seen = pulse.wait(beyond: seen, untilMonotonic: next)
        }
    }

    private func begin(_ name: String) {
        do throws(SystemError) {
            _ = try BackgroundThread("project-work") { [self] in work(name) }
        } catch {
            Log.shared.error("cannot start a thread for a project's work", [.project(name), .error("\(error)")])
            work(name, isGivenUp: true)
        }
    }

    private func work(_ name: String, isGivenUp: Bool = false) {
        while true {
            let (work, isClosed) = state.withLock { state in
                assert(state.lanes[name]?.hasThread == true, "work runs on the thread of its lane")
                let next = state.lanes[name].flatMap { $0.waiting.isEmpty ? nil : $0.waiting[0] }
                if next == nil { state.lanes[name] = nil } else { state.lanes[name]?.waiting.removeFirst() }
                return (next, state.isClosed)
            }
            guard let work else { break }
            work(isGivenUp || isClosed)
        }
        pulse.beat()
    }
}

extension ProjectLanes.State {
    fileprivate mutating func take(_ name: String, _ work: @escaping ProjectLanes.Work) -> Bool {
        let isNew = lanes[name] == nil
        guard !isClosed, !isNew || lanes.count < Limits.maximumProjects,
            lanes[name, default: .init()].waiting.count < Limits.maximumWaitingOperations
        else { return false }
        lanes[name, default: .init()].waiting.append(work)
        assert(lanes.count <= Limits.maximumProjects, "there are no more lanes than projects")
        return true
    }
}
