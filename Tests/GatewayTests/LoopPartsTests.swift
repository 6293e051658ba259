import Diagnostics
import TestSupport
import Testing

@testable import Gateway

/// Tests of small parts of a project's loop.
@Suite(.within(minutes: 1)) struct LoopPartsTests {
    @Test func `offsets are written down once, and those of their own are kept apart`() {
        var tracker = ReceiptTracker()
        #expect(tracker.mark == nil)
        tracker.begin(5, at: 10)
        tracker.begin(2, at: 20)
        #expect(tracker.mark == 10, "nobody is taken to have more than the first one")
        #expect(tracker.separated == [2, 5])
        var changed = tracker.takeChanged(allReached: 30)
        #expect(changed == [2, 5] && tracker.mark == 30)
        changed = tracker.takeChanged(allReached: 31)
        #expect(changed == [])
        tracker.joinToSocket(2)
        tracker.noteChange(2)
        changed = tracker.takeChanged(allReached: 32)
        #expect(tracker.separated == [5] && changed == [2])
        tracker.noteChange(5)
        tracker.forget(5)
        changed = tracker.takeChanged(allReached: 33)
        #expect(tracker.separated == [] && changed == [])
    }

    @Test func `a version that was seen before its mail counts from what was judged before that turn`() {
        var newer = NewerCatalog()
        newer.noteTurn(1, judgedUpTo: 10)
        let first = newer.adopt(1)
        #expect(first == .max, "nothing was judged before")
        newer.noteTurn(1, judgedUpTo: 20)
        newer.noteTurn(2, judgedUpTo: 30)
        newer.noteTurn(2, judgedUpTo: 40)
        let second = newer.adopt(2)
        #expect(second == 20)
        newer.noteTurn(2, judgedUpTo: 50)
        let third = newer.adopt(3)
        #expect(third == 50, "its mail came first")
    }

    @Test func `two versions seen before the first one's mail count from the earlier place`() {
        var newer = NewerCatalog()
        newer.noteTurn(1, judgedUpTo: 10)
        _ = newer.adopt(1)
        newer.noteTurn(2, judgedUpTo: 30)
        newer.noteTurn(3, judgedUpTo: 40)
        let from = newer.adopt(3)
        #expect(from == 10)
    }

    @Test func `no two trackers of presence are one, and changes are passed on once`() {
        var presence = PresenceReplica(loop: 2)
        let trackers = [presence.newTracker(), presence.newTracker()]
        #expect(trackers[0] != trackers[1])
        let changes = presence.takeChanges()
        #expect(changes.isEmpty)
    }

    @Test func `a review asks about each channel, a few at a time, when the rules have changed`() {
        var review = RightsReview()
        func due(_ review: inout RightsReview, now: UInt64 = 0) -> [UInt32] {
            var places: [UInt32] = []
            while let place = review.takeNext(before: 100, now: now) {
                places.append(place)
                review.isAsked()
            }
            return places
        }
        review.take("a")
        let atFirst = due(&review)
        #expect(atFirst == [], "the channels were admitted under these rules")
        review.take("b")
        let first = due(&review)
        #expect(first == Array(0..<UInt32(Limits.rightsReviewedAtOnce)))
        review.isAnswered()
        let second = due(&review)
        #expect(second == [UInt32(Limits.rightsReviewedAtOnce)])
    }

    @Test func `a channel whose rights stay unknown is asked about again, and not for ever`() {
        var review = RightsReview()
        var tries = 1
        while review.tryAgain(7, now: 10) {
            tries += 1
            let early = review.takeNext(before: 0, now: 10)
            #expect(early == nil, "there is a pause first")
            let place = review.takeNext(before: 0, now: .max)
            #expect(place == 7)
        }
        #expect(tries == Limits.rightsReviewTries)
    }
}
