import Synchronization
import System

/// Virtual clock that moves only when a caller moves it.
public final class VirtualTime: TimeSource {
    /// Initial monotonic time in nanoseconds, as on a computer that has run for a while.
    static let start: UInt64 = 1_000_000_000_000
    private let now = Atomic<UInt64>(start)
    /// Wall-clock time, in microseconds since 1970, at which the monotonic time is zero.
    private static let zero: Int64 = 1_800_000_000_000_000

    /// Microseconds by which the wall clock is ahead.
    private let shift = Atomic<Int64>(0)

    public init() {}

    public func monotonicNanoseconds() -> UInt64 { now.load(ordering: .relaxed) }
    public func unixMicroseconds() -> Int64 {
        Self.zero + Int64(monotonicNanoseconds() / 1000) + shift.load(ordering: .relaxed)
    }

    public var boot: UInt64 { 1 }

    /// Sets the wall clock forward by seconds, or back if they are negative. Monotonic time is not affected.
    func setWallClock(aheadBy seconds: Int64) { shift.store(seconds * 1_000_000, ordering: .relaxed) }

    func advance(to moment: UInt64) {
        precondition(moment >= monotonicNanoseconds(), "time does not go back")
        now.store(moment, ordering: .relaxed)
    }

    func advance(milliseconds: UInt64) { advance(to: monotonicNanoseconds() + milliseconds * 1_000_000) }
}

/// Queue of future actions in the order of their times. Actions with the same time run in the order in which they were
/// added.
final class Agenda {
    private struct Item {
        var moment: UInt64
        var number: UInt64
        var body: () -> Void
    }

    private let time: VirtualTime
    private var items: [Item] = []
    private var lastNumber: UInt64 = 0

    init(_ time: VirtualTime) { self.time = time }

    var next: UInt64? { items.first?.moment }

    func after(milliseconds: UInt64, _ body: @escaping () -> Void) {
        lastNumber += 1
        let item = Item(
            moment: time.monotonicNanoseconds() + milliseconds * 1_000_000, number: lastNumber, body: body)
        let place = items.firstIndex { $0.moment > item.moment } ?? items.count
        items.insert(item, at: place)
    }

    /// Runs the next action early, as if another thread were faster. Does nothing if it is not due within 20 ms.
    func hurry() {
        guard let first = items.first, first.moment <= time.monotonicNanoseconds() + 20_000_000 else { return }
        items.removeFirst()
        first.body()
    }

    /// Runs the due actions. Returns true if there were any.
    func run() -> Bool {
        var didAnything = false
        while let first = items.first, first.moment <= time.monotonicNanoseconds() {
            items.removeFirst()
            first.body()
            didAnything = true
        }
        return didAnything
    }

    func removeAll() { items = [] }
}

/// Clock by which a log removes old segments. It can be ahead of the virtual clock, so that new segments count as old.
final class SinkTime: TimeSource {
    static let age = Duration.seconds(48 * 3600)
    private static let ageNanoseconds: UInt64 = 48 * 3600 * 1_000_000_000

    private let time: VirtualTime
    /// Nanoseconds by which the clock was moved.
    private let passed = Atomic<UInt64>(0)
    private let ahead = Atomic<UInt64>(0)

    init(_ time: VirtualTime) { self.time = time }

    func monotonicNanoseconds() -> UInt64 { time.monotonicNanoseconds() + passed.load(ordering: .relaxed) }
    func unixMicroseconds() -> Int64 { time.unixMicroseconds() + Int64(ahead.load(ordering: .relaxed) / 1000) }

    /// Moves the clock so far forward that the log keeps only the last `milliseconds`.
    func isAhead(retaining milliseconds: UInt64) {
        passed.add(Self.ageNanoseconds, ordering: .relaxed)
        ahead.store(Self.ageNanoseconds - milliseconds * 1_000_000, ordering: .relaxed)
    }

    func isBack() { ahead.store(0, ordering: .relaxed) }
}
