import Bytes
import Change
import Diagnostics
import EventLog
import System
import TestSupport
import Testing

@testable import Delivery

/// Tests of the pipeline's parts that hold the state of its current entry, or of its reading.
@Suite(.within(minutes: 1)) struct EntryPartsTests {
    @Test func `the log is asked once for a change's row, and again in another era`() {
        var values = EntryValues(ProjectMetrics())
        #expect(values.mayAsk(for: 0, in: 1) && !values.counts(in: 1))
        values.ask(for: 0, in: 1)
        #expect(!values.mayAsk(for: 0, in: 1) && values.mayAsk(for: 1, in: 1) && values.mayAsk(for: 0, in: 2))
        #expect(values.counts(in: 1) && !values.counts(in: 2))
        values.finishEntry()
        #expect(values.mayAsk(for: 0, in: 1) && !values.counts(in: 1))
    }

    @Test func `a refusal for now keeps the place, and a past is given up after a while`() {
        var live = LogReading(from: nil)
        let refused = SystemError(operation: "open", subject: "/secret", code: 24)
        #expect(live.failed(refused, in: 3, at: 10) == false)
        #expect(live.health.isPausing(at: 10) && live.place.beginning == .end && !live.health.hasLostPast)
        // The text is public: every client that can reach the port may read it.
        #expect(live.health.unreadable?.contains("secret") == false)
        live.hasRead(at: 20)
        #expect(live.health.unreadable == nil && !live.health.isPausing(at: 20))
        var past = LogReading(from: EventLogPosition(epoch: 1, offset: 10))
        #expect(past.failed(refused, in: 3, at: 0) == false)
        #expect(past.failed(refused, in: 3, at: 3_600_000_000_000) == false)
        #expect(past.health.hasLostPast)
    }

    @Test func `a damaged segment is left by the live reader, and ends a past`() {
        let unreadable = ByteError(expected: "an entry", offset: 0)
        var live = LogReading(from: nil)
        #expect(live.failed(unreadable, in: 3, at: 0) == true)
        #expect(live.place.beginning == .behindSegment(3) && live.place.segmentAwaited(newest: 3) == 3)
        #expect(live.health.unreadable == LostPlace.segment(3).reason && !live.health.isPausing(at: 0))
        var past = LogReading(from: EventLogPosition(epoch: 1, offset: 10))
        #expect(past.failed(unreadable, in: 3, at: 0) == false)
        #expect(past.health.hasLostPast)
    }

    @Test func `who was too slow for retention goes on at the log's end`() {
        var reading = LogReading(from: EventLogPosition(epoch: 1, offset: 10))
        #expect(reading.place.beginning == .offset(10))
        #expect(reading.failed(EventLogError.outsideRetention(oldest: 50), in: 3, at: 0) == true)
        #expect(reading.place.beginning == .end && !reading.health.hasLostPast)
    }
}
