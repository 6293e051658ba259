import TestSupport
import Testing

@testable import Delivery
@testable import EventLog

/// Tests of a reader's position in the log, and of its health.
@Suite(.within(minutes: 1)) struct ReadingPlaceTests {
    private static func at(_ offset: UInt64, epoch: UInt64 = 1) -> EventLogPosition {
        EventLogPosition(epoch: epoch, offset: offset)
    }

    private static func entry(_ offset: UInt64, changes: UInt32 = 2, epoch: UInt64 = 1) -> EventLogEntry {
        EventLogEntry(
            header: EntryHeader(
                payloadBytes: 0, kind: .transaction, isContinued: false, changeCount: changes, offset: offset, lsn: 0,
                time: 0, publishedBytes: 0),
            epoch: epoch, segment: 0, position: 0, precedesStart: false)
    }

    private static func live(at offset: UInt64 = 10) -> ReadingPlace {
        var place = ReadingPlace(from: nil)
        #expect(place.beginning == .end)
        #expect(place.opened(at: at(0), end: at(offset)) == [])
        return place
    }

    @Test func `the live reader begins at the log's end and tells of nothing`() {
        let place = Self.live()
        #expect(place.passed == 10 && place.epoch == 1 && place.frontier == 10 && !place.isOfPast)
    }

    @Test func `a log that begins late is read from its beginning, of which clients are told`() {
        var place = ReadingPlace(from: nil)
        place.logIsMissing()
        #expect(place.beginning == .oldest)
        #expect(place.opened(at: Self.at(0), end: Self.at(10)) == [Pipeline.logHasBegun])
        #expect(place.passed == 0)
    }

    @Test func `a log that could not be opened is read from where it ended then, and nothing is told`() {
        var place = ReadingPlace(from: nil)
        place.isRefused(end: Self.at(10))
        place.isRefused(end: Self.at(20))
        #expect(place.beginning == .offset(10))
        #expect(place.opened(at: Self.at(8), end: Self.at(30)) == [])
        #expect(place.passed == 10)
        #expect(place.beginsBehind(gap: Self.entry(10)) && !place.beginsBehind(gap: Self.entry(11)))
    }

    @Test func `an entry is passed as a whole, and its done part counts before`() {
        var place = Self.live()
        place.begin(Self.entry(10, changes: 5))
        place.gather(Self.entry(10, changes: 5))
        for _ in 0..<3 { place.passChange() }
        #expect(place.entryAt == 10 && place.done == 3 && place.frontier == 13 && place.gathered == 15)
        place.finish(Self.entry(10, changes: 5))
        #expect(place.entryAt == nil && place.passed == 15 && place.done == 0 && place.frontier == 15)
    }

    @Test func `a reader of a past stays at its start while it gets the schemas before it`() {
        var place = ReadingPlace(from: Self.at(10))
        #expect(place.isOfPast && place.beginning == .offset(10))
        #expect(place.opened(at: Self.at(8), end: Self.at(30)) == [])
        place.begin(Self.entry(3))
        place.finish(Self.entry(3))
        #expect(place.passed == 10)
    }

    @Test func `an epoch behind an unread gap is not taken for reached`() {
        var place = ReadingPlace(from: Self.at(10, epoch: 1))
        _ = place.opened(at: Self.at(10, epoch: 2), end: Self.at(30, epoch: 2))
        #expect(place.epoch == nil && place.epochReached == 1)
        #expect(place.beginsBehind(gap: Self.entry(10, epoch: 1)) && !place.beginsBehind(gap: Self.entry(10, epoch: 2)))
        // The gap itself states which epoch follows, so no epoch is missing.
        #expect(place.enter(2) == false)
        place.finish(Self.entry(10, epoch: 2))
        #expect(place.epochReached == 2)
    }

    @Test func `another epoch without its gap is noticed once`() {
        var place = Self.live()
        #expect(place.enter(1) == false)
        #expect(place.enter(2) == true)
        #expect(place.enter(2) == false)
        #expect(place.epoch == 2)
    }

    @Test func `who lost the place goes on where the log can be read, and says why`() {
        var place = Self.live()
        place.lose(.end)
        #expect(place.beginning == .end && place.segmentAwaited(newest: 0) == nil)
        #expect(place.opened(at: Self.at(40), end: Self.at(40)) == [LostPlace.end.reason])
        place.lose(.segment(7))
        #expect(place.segmentAwaited(newest: 7) == 7 && place.segmentAwaited(newest: 8) == nil)
        #expect(place.beginning == .behindSegment(7))
        #expect(place.opened(at: Self.at(60), end: Self.at(90)) == [LostPlace.segment(7).reason])
        #expect(place.passed == 60)
        // A loss that was reported is not reported again.
        #expect(place.opened(at: Self.at(0), end: Self.at(90)) == [])
    }

    // MARK: Health

    @Test func `a live reader tries again for as long as it takes`() {
        var health = ReadingHealth()
        var now: UInt64 = 1
        #expect(health.isRefused("no", ofPast: false, at: now) == .first)
        for _ in 0..<200 {
            #expect(health.isPausing(at: now))
            now += 10_000_000_000
            #expect(!health.isPausing(at: now))
            #expect(health.isRefused("still no", ofPast: false, at: now) == .again)
        }
        #expect(health.unreadable == "still no" && !health.hasLostPast)
        #expect(health.hasRead(at: now) == .seconds(2000))
        #expect(health.hasRead(at: now) == nil)
        #expect(health.unreadable == nil && !health.isPausing(at: now))
    }

    @Test func `a past that cannot be read for long is given up`() {
        var health = ReadingHealth()
        #expect(health.isRefused("no", ofPast: true, at: 0) == .first)
        #expect(health.isRefused("no", ofPast: true, at: 1_000_000) == .again)
        #expect(health.isRefused("no", ofPast: true, at: 3_600_000_000_000) == .givenUp)
        #expect(health.hasLostPast)
    }
}
