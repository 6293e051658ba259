import Change
import EventLog
import Synchronization
import System
import TestSupport
import Testing

@testable import Ingest

@Suite(.within(minutes: 5)) struct LogSinkTests {
    @Test func `a quiet log is bounded by age, too`() throws {
        let storage = FaultyStorage()
        let clock = Hours()
        var options = EventLogOptions(source: 0)
        options.preparesSegments = false
        options.segmentBytes = 64 << 10
        options.retentionAge = .seconds(72 * 3600)
        options.now = { clock.microseconds }
        let sink = try LogSink(directory: storage, options: options)
        try sink.begin(systemIdentifier: 7, at: LSN(100))
        for step in 1...20 as ClosedRange<UInt64> {
            clock.advance(by: 10)
            try sink.advance(to: LSN(100 + step))
            try sink.flush()
        }
        // 200 hours in segments of 18 hours or a little more.
        #expect((8...12).contains(sink.segments.count), "\(sink.segments.count) segments")
        #expect(sink.position == LSN(120))
    }

    /// A log of twenty segments of an hour each.
    private func filled(_ storage: FaultyStorage, _ time: TwoClocks) throws {
        let sink = try LogSink(directory: storage, options: options(time), time: time)
        try sink.begin(systemIdentifier: 7, at: LSN(100))
        for step in 1...40 as ClosedRange<UInt64> {
            time.pass(hours: 1)
            try sink.advance(to: LSN(100 + step))
            try sink.flush()
        }
    }

    private func options(_ time: TwoClocks) -> EventLogOptions {
        var options = EventLogOptions(source: 0)
        options.preparesSegments = false
        options.segmentBytes = 64 << 10
        options.retentionAge = .seconds(4 * 3600)
        options.now = { time.unixMicroseconds() }
        return options
    }

    @Test(arguments: [false, true]) func `a jump of the clock does not delete the log`(isRestarted: Bool) throws {
        let storage = FaultyStorage()
        let time = TwoClocks()
        try filled(storage, time)
        let before = try storage.names().filter { $0.hasSuffix(".segment") }.count
        #expect(before >= 3)
        if isRestarted {
            storage.processDied()
            time.jump(hours: 24 * 365)
        }
        let sink = try LogSink(directory: storage, options: options(time), time: time)
        if !isRestarted { time.jump(hours: 24 * 365) }
        for step in 1...30 as ClosedRange<UInt64> {
            time.pass(hours: 0)
            try sink.advance(to: LSN(1000 + step))
            try sink.flush()
        }
        #expect(sink.segments.count >= before)
        // Time that passes does what it always did, and what was written after the jump is not younger for it.
        for step in 1...40 as ClosedRange<UInt64> {
            time.pass(hours: 1)
            try sink.advance(to: LSN(2000 + step))
            try sink.flush()
        }
        #expect(try #require(sink.segments.first).sequence > UInt64(before))
    }

    @Test func `after a rest the clock is reached at twice the speed`() {
        var clock = RetentionClock(known: 0, wall: 100_000_000, monotonic: 5_000_000_000)
        #expect(clock.now(wall: 100_000_000, monotonic: 5_000_000_000) == 0)
        #expect(clock.now(wall: 110_000_000, monotonic: 15_000_000_000) == 20_000_000)
        #expect(clock.now(wall: 200_000_000, monotonic: 105_000_000_000) == 200_000_000)
        // It goes back with the wall clock, and a later time that is known of is no start.
        #expect(clock.now(wall: 7, monotonic: 106_000_000_000) == 7)
        var ahead = RetentionClock(known: 1_000_000_000, wall: 9, monotonic: 0)
        #expect(ahead.now(wall: 9, monotonic: 0) == 9)
    }
}

/// A wall clock that may jump, and the time that passes.
private final class TwoClocks: TimeSource {
    private let passed = Atomic<UInt64>(1_000_000_000_000)
    private let jumped = Atomic<Int64>(0)

    func monotonicNanoseconds() -> UInt64 { passed.load(ordering: .relaxed) }
    func unixMicroseconds() -> Int64 {
        1_700_000_000_000_000 + Int64(monotonicNanoseconds() / 1000) + jumped.load(ordering: .relaxed)
    }

    /// Hours, and a minute more: retention looks often enough.
    func pass(hours: UInt64) { passed.add((hours * 3600 + 60) * 1_000_000_000, ordering: .relaxed) }
    func jump(hours: Int64) { jumped.add(hours * 3_600_000_000, ordering: .relaxed) }
}

/// A clock that a test moves on.
private final class Hours: Sendable {
    private let passed = Atomic<Int64>(0)

    var microseconds: Int64 { 1_700_000_000_000_000 + passed.load(ordering: .relaxed) * 3_600_000_000 }
    func advance(by hours: Int64) { passed.add(hours, ordering: .relaxed) }
}
