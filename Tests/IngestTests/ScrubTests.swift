import Diagnostics
import EventLog
import System
import TestSupport
import Testing

@testable import Ingest

@Suite(.within(minutes: 5)) struct ScrubTests {
    @Test func `each segment is read in its turn, new ones first, and again after a day`() {
        var schedule = ScrubSchedule()
        var now: UInt64 = 5
        for expected in [3, 4] as [UInt64] {
            #expect(schedule.next([3, 4], now: now) == expected)
            schedule.note(expected, isDamaged: expected == 4, now: now)
            now += 10
        }
        #expect(schedule.next([3, 4], now: now) == nil && schedule.dueCount == 0 && schedule.damaged == [4])
        #expect(schedule.next([3, 4, 5], now: now) == 5)
        schedule.note(5, isDamaged: false, now: now)
        #expect(schedule.next([3, 4, 5], now: 5 + ScrubSchedule.interval) == 3)
        schedule.note(3, isDamaged: false, now: 5 + ScrubSchedule.interval)
        // Retention has deleted the segment together with its damage.
        #expect(schedule.next([5], now: now) == nil)
        #expect(schedule.damaged.isEmpty)
    }

    @Test func `a bit that changed in a sealed segment is found while the hub runs`() throws {
        let storage = FaultyStorage()
        var options = EventLogOptions(source: 7)
        options.preparesSegments = false
        options.segmentBytes = 4000
        let writer = try EventLogWriter(directory: storage, options: options)
        for lsn in 1...20 as ClosedRange<UInt64> {
            let payload = [UInt8](repeating: UInt8(lsn), count: 900)
            try writer.rollIfNeeded(adding: 900)
            try writer.append(kind: .transaction, changeCount: 1, lsn: lsn, time: 5, payload: payload.span.bytes)
            try writer.flush()
        }
        storage.flipBit(8 * 2000, in: "0000000002.segment")
        let metrics = ProjectMetrics()
        let end = writer.end
        let scrubber = LogScrubber({ storage }, bytesPerSecond: 1 << 30, metrics: metrics) { end }
        let thread = try BackgroundThread("scrub") { scrubber.run() }
        #expect(eventually { metrics.damagedSegments.value == 1 && metrics.scrubDueSegments.value == 0 })
        scrubber.stop()
        thread.join()
        // The scrubber has read everything except the rest of the damaged segment.
        let sealed = writer.segments.filter(\.isSealed).reduce(0) { $0 + $1.bytes }
        #expect(metrics.scrubbedBytes.value > sealed / 2, "of \(sealed) bytes")
    }
}
