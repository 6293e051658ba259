import TestSupport
import Testing

@testable import Catalog

@Suite(.within(minutes: 10)) struct CatalogAdoptionsTests {
    private let adoptions = CatalogAdoptions()

    private func adopt(_ version: UInt64, _ places: UInt64...) {
        for (loop, place) in places.enumerated() { adoptions.adopt(version, from: place, to: place, by: loop, of: 2) }
    }

    @Test func `nobody has heard of anything`() {
        #expect(adoptions.standing(of: 1) == .unheard)
    }

    @Test func `all must have heard, each where it stands`() {
        adopt(1, 7)
        #expect(adoptions.standing(of: 1) == .underWay)
        adopt(1, 7, 5)
        #expect(adoptions.standing(of: 1) == .whole(first: 5, last: 7))
        #expect(adoptions.standing(of: 2) == .underWay)
    }

    @Test func `versions between that nobody noted count from the first of them on`() {
        adopt(1, 3, 3)
        adoptions.noted()
        adopt(2, 10, 8)
        adopt(3, 20, 21)
        #expect(adoptions.standing(of: 3) == .whole(first: 8, last: 21))
        adoptions.noted()
        #expect(adoptions.standing(of: 3) == .whole(first: 21, last: 21))
    }

    @Test func `what waits for answers may be judged by either`() {
        adoptions.adopt(1, from: 4, to: 9, by: 0, of: 2)
        adoptions.adopt(1, from: 6, to: 6, by: 1, of: 2)
        #expect(adoptions.standing(of: 1) == .whole(first: 4, last: 9))
    }

    @Test func `who hears of the same again is no later for that`() {
        adopt(1, 3, 3)
        adopt(1, 9, 9)
        #expect(adoptions.standing(of: 1) == .whole(first: 3, last: 3))
    }

    @Test func `a version that judges as the one before is no step`() {
        adoptions.step(at: 1)
        adopt(1, 3, 3)
        adoptions.noted()
        adoptions.step(at: 2)
        adopt(2, 10, 8)
        #expect(adoptions.standing(of: 3) == .whole(first: 8, last: 10), "nobody need hear of the third")
        adopt(3, 20, 21)
        #expect(adoptions.standing(of: 3) == .whole(first: 8, last: 10))
        #expect(!adoptions.areNoted(of: 3))
        adoptions.noted()
        #expect(adoptions.areNoted(of: 3))
        adopt(4, 30, 31)
        #expect(adoptions.standing(of: 4) == .whole(first: 10, last: 10))
        adoptions.step(at: 5)
        #expect(adoptions.standing(of: 5) == .underWay)
        #expect(!adoptions.areNoted(of: 5))
    }
}
