import Bytes
import Synchronization
import System

/// Position in the log. A client sends it back to resume. Its text form is always `epoch.offset`, with the epoch in
/// hexadecimal.
public struct EventLogPosition: Sendable, Hashable, CustomStringConvertible {
    public var epoch: UInt64
    /// Offset of the next change.
    public var offset: UInt64

    public init(epoch: UInt64, offset: UInt64) {
        self.epoch = epoch
        self.offset = offset
    }

    public var description: String { "\(Hex.text(epoch)).\(offset)" }

    /// Parses the text form; nil if the text has another form.
    public init?(_ text: some StringProtocol) {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        // Swift's number parsers accept a sign, so every character is checked.
        guard parts.count == 2, parts[0].utf8.count == 16, parts.allSatisfy({ $0.allSatisfy(\.isHexDigit) }),
            let epoch = UInt64(parts[0], radix: 16), let offset = UInt64(parts[1])
        else { return nil }
        self.init(epoch: epoch, offset: offset)
    }
}

/// Durable end of the log, which the writer publishes to readers in the same process. Everything before it is synced
/// and consists of whole transactions.
public final class EventLogEnd: Sendable {
    public struct State: Sendable, Equatable {
        public var position: EventLogPosition
        /// LSN of the last whole durable transaction.
        public var lsn: UInt64
        /// Number of the active segment.
        public var segment: UInt64
        /// Byte position in the active segment at which the durable log ends.
        public var segmentBytes: UInt64
    }

    private struct Shared {
        var state: State
        var wakers: [(id: UInt64, wake: @Sendable () -> Void)] = []
        var nextWaker: UInt64 = 0
        /// Number of the newest segment that some reader cannot read to its end; 0 if there is none.
        var unreadable: UInt64 = 0
    }

    private let shared: Mutex<Shared>
    private let pulse = Pulse()

    init(_ state: State) { shared = Mutex(Shared(state: state)) }

    public var state: State { shared.withLock { $0.state } }

    func publish(_ state: State) {
        let wakers = shared.withLock { shared -> [(id: UInt64, wake: @Sendable () -> Void)] in
            guard shared.state != state else { return [] }
            let before = shared.state
            assert(
                (before.segment, before.segmentBytes) < (state.segment, state.segmentBytes)
                    && before.position.offset <= state.position.offset, "the end of the log only moves forward")
            shared.state = state
            return shared.wakers
        }
        pulse.beat()
        // The lock is not held here, because a waker may read the state.
        for waker in wakers { waker.wake() }
    }

    /// Asks the writer to begin the segment after `segment`, because a reader cannot read the rest of `segment`.
    public func askForSegment(behind segment: UInt64) {
        shared.withLock { $0.unreadable = max($0.unreadable, segment) }
    }

    /// True if a reader waits for the segment after the active one.
    public var isSegmentWanted: Bool { shared.withLock { $0.unreadable >= $0.state.segment } }

    /// Registers `wake` and returns an id for it. The writer's thread calls `wake` each time the end has moved. `wake`
    /// must not block: it should only signal an eventfd.
    public func addWaker(_ wake: @escaping @Sendable () -> Void) -> UInt64 {
        shared.withLock { shared in
            shared.nextWaker += 1
            shared.wakers.append((id: shared.nextWaker, wake: wake))
            return shared.nextWaker
        }
    }

    /// Removes a waker. A call of it may still be running after the return.
    public func removeWaker(_ id: UInt64) {
        shared.withLock { shared in shared.wakers.removeAll { $0.id == id } }
    }

    /// Blocks until the end differs from `seen` or the timeout has passed. Returns the end at that moment.
    public func wait(beyond seen: State, timeout: Duration) -> State {
        let (seconds, attoseconds) = timeout.components
        let nanoseconds = UInt64(max(0, seconds)) * 1_000_000_000 + UInt64(max(0, attoseconds)) / 1_000_000_000
        let deadline = Clock.monotonicNanoseconds() + nanoseconds
        while true {
            // The pulse is read before the state, so that a move between the two reads ends the wait immediately.
            let count = pulse.value
            let state = state
            if state != seen || Clock.monotonicNanoseconds() >= deadline { return state }
            _ = pulse.wait(beyond: count, untilMonotonic: deadline)
        }
    }
}
