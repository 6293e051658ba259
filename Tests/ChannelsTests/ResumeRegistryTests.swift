import Bytes
import EventLog
import TestSupport
import Testing

@testable import Channels

/// Registry in an object, so that an expectation can change it and check its answer.
private final class Shelf {
    var book: ResumeRegistry
    /// Identity of the next joining client.
    var taker = ResumeRegistry.Taker(address: 1, socket: 1)

    init(_ book: ResumeRegistry) { self.book = book }

    var count: Int { book.count }
    var goneCount: Int { book.goneCount }

    func arrive(
        _ key: ResumeKey, on loop: Int, lastRef: UInt32, at mark: EventLogPosition, owesLoss: Bool = false,
        now: UInt64 = 0
    ) -> ResumeRegistry.Place? {
        book.arrive(key, of: taker, on: loop, lastRef: lastRef, at: mark, owesLoss: owesLoss, now: now)
    }
    func stand(_ place: ResumeRegistry.Place, at mark: EventLogPosition?, lastRef: UInt32, heard: UInt64 = 0) {
        book.stand(place, at: mark, lastRef: lastRef, heard: heard)
    }
    func set(_ mark: EventLogPosition, of loop: Int) { book.set(mark, of: loop) }
    func leave(_ place: ResumeRegistry.Place) { book.leave(place) }
    func depart(_ place: ResumeRegistry.Place, owesLoss: Bool, heard: UInt64, until: Int64) {
        book.depart(place, owesLoss: owesLoss, heard: heard, until: until)
    }
    func claim(_ key: ResumeKey, firstRef: UInt32, now: UInt64) -> ResumeRegistry.Claim? {
        guard case .goesOn(let claim) = book.arrival(key, of: taker, firstRef: firstRef, on: 0, now: now) else {
            return nil
        }
        return claim
    }
    func comeBack(to place: ResumeRegistry.Place?, lastRef: UInt32, at mark: EventLogPosition) -> ResumeRegistry.Place?
    {
        book.comeBack(to: place, ResumeRegistryTests.key, of: taker, on: 0, lastRef: lastRef, at: (mark, false), now: 0)
    }
    func expire(now: Int64) { book.expire(now: now) }
    func takeEvicted() -> Int { book.takeEvicted() }
    /// Returns the records one by one, because a process may end within a large write.
    func takeChanges() -> [(bytes: [UInt8], at: UInt64)] {
        book.takeChanges().flatMap { bytes, at in
            stride(from: 0, to: bytes.count, by: ResumeRegistry.recordBytes).map { start in
                (Array(bytes[start..<start + ResumeRegistry.recordBytes]), at + UInt64(start))
            }
        }
    }
}

@Suite(.within(minutes: 2)) struct ResumeRegistryTests {
    fileprivate static let key = ResumeKey(high: 1, low: 2)

    private func mark(_ offset: UInt64) -> EventLogPosition { EventLogPosition(epoch: 7, offset: offset) }

    private func book(maximum: Int = 100) -> Shelf {
        let book = Shelf(ResumeRegistry(maximum: maximum, loops: 2))
        book.set(mark(100), of: 0)
        book.set(mark(100), of: 1)
        return book
    }

    @Test func `of two that stood in different logs it is not known which is further back, and it is told`() throws {
        let book = book()
        for mark in [EventLogPosition(epoch: 7, offset: 1000), EventLogPosition(epoch: 8, offset: 10)] {
            let place = try #require(book.arrive(Self.key, on: 0, lastRef: 3, at: mark))
            book.depart(place, owesLoss: false, heard: 0, until: 60)
        }
        for _ in 0..<2 { #expect(try #require(book.claim(Self.key, firstRef: 4, now: 1)).owesLoss) }
    }

    @Test func `who comes back goes on where it stood, once`() throws {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 0, lastRef: 3, at: mark(10)))
        book.depart(place, owesLoss: false, heard: 0, until: 60)
        #expect(
            book.claim(Self.key, firstRef: 4, now: 1)
                == ResumeRegistry.Claim(mark: mark(10), owesLoss: false, place: place))
        #expect(book.goneCount == 0 && book.count == 1)
        #expect(book.claim(Self.key, firstRef: 4, now: 1) == nil)
    }

    @Test func `who begins with a number that was there already is another`() throws {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 0, lastRef: 3, at: mark(10)))
        book.depart(place, owesLoss: true, heard: 0, until: 60)
        #expect(book.claim(Self.key, firstRef: 1, now: 1) == nil)
        #expect(book.claim(Self.key, firstRef: 3, now: 1) == nil)
        #expect(book.claim(ResumeKey(high: 1, low: 3), firstRef: 4, now: 1) == nil)
        #expect(book.claim(Self.key, firstRef: 4, now: 1)?.owesLoss == true)
    }

    @Test func `without a mark of its own it stands where its loop does`() throws {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 1, lastRef: 3, at: mark(10)))
        book.stand(place, at: nil, lastRef: 4)
        book.set(mark(120), of: 1)
        #expect(book.claim(Self.key, firstRef: 4, now: 1) == nil)
        #expect(book.claim(Self.key, firstRef: 5, now: 1)?.mark == mark(120))
    }

    @Test func `one that is believed to be here is not expected back, unless it turns out to be another`() throws {
        for (heard, comesBack) in [(UInt64(40), false), (60, true)] {
            let book = book()
            let place = try #require(book.arrive(Self.key, on: 0, lastRef: 3, at: mark(10)))
            let other = try #require(book.claim(Self.key, firstRef: 9, now: 50))
            #expect(other.mark == mark(10))
            book.depart(place, owesLoss: false, heard: heard, until: 60)
            #expect((book.claim(Self.key, firstRef: 9, now: 70) != nil) == comesBack)
            book.stand(try #require(other.place), at: mark(20), lastRef: 11)
        }
    }

    @Test func `who was believed to be gone is asked, and is known again when it answers`() throws {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 1, lastRef: 3, at: mark(10)))
        #expect(book.claim(Self.key, firstRef: 9, now: 50) != nil)
        #expect(book.book.takeDoubted(on: 0) == [])
        for _ in 0..<2 { #expect(book.book.takeDoubted(on: 1) == [place]) }
        #expect(book.claim(Self.key, firstRef: 9, now: 51) == nil)
        book.book.stand(place, at: mark(20), lastRef: 4, heard: 50)
        #expect(book.book.takeDoubted(on: 1) == [place])
        book.book.stand(place, at: mark(20), lastRef: 4, heard: 60)
        #expect(book.book.takeDoubted(on: 1) == [])
        #expect(book.claim(Self.key, firstRef: 9, now: 61)?.mark == mark(20))
        #expect(book.claim(Self.key, firstRef: 9, now: 61) == nil)
    }

    @Test func `who has outlived a restart keeps nobody else from being forgotten`() throws {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 0, lastRef: 3, at: mark(10)))
        book.depart(place, owesLoss: false, heard: 0, until: 50)
        let once = restored(written(book), until: 120)
        // The next process keeps the records for a shorter time.
        let twice = restored(written(once), until: 5)
        let other = try #require(twice.arrive(ResumeKey(high: 5, low: 6), on: 0, lastRef: 1, at: mark(20)))
        twice.depart(other, owesLoss: false, heard: 0, until: 6)
        twice.expire(now: 6)
        #expect(twice.goneCount == 0)
    }

    @Test func `what somebody is to be told of is known from its coming on, whenever the process ends`() throws {
        let book = book()
        // One client has just joined. The other one took over the entry of a client that the hub still counts as
        // connected.
        #expect(book.arrive(Self.key, on: 0, lastRef: 3, at: mark(10), owesLoss: true) != nil)
        #expect(restored(written(book)).claim(Self.key, firstRef: 4, now: 1)?.owesLoss == true)
        let other = try #require(book.claim(Self.key, firstRef: 9, now: 50)?.place)
        let next = restored(written(book))
        #expect(next.claim(Self.key, firstRef: 10, now: 1)?.owesLoss == true)
        // A client that disconnected has returned.
        book.depart(other, owesLoss: true, heard: 60, until: 90)
        #expect(book.claim(Self.key, firstRef: 10, now: 61)?.owesLoss == true)
        #expect(restored(written(book)).claim(Self.key, firstRef: 11, now: 1)?.owesLoss == true)
    }

    @Test func `who is doubted and has not answered is expected back after a kill, as it may be another`() throws {
        let book = book()
        #expect(book.arrive(Self.key, on: 0, lastRef: 3, at: mark(10)) != nil)
        let other = try #require(book.claim(Self.key, firstRef: 9, now: 50)?.place)
        book.stand(other, at: mark(40), lastRef: 12)
        let next = restored(written(book))
        #expect(next.goneCount == 2)
        #expect(next.claim(Self.key, firstRef: 22, now: 1)?.mark == mark(10))
    }

    @Test func `whose numbers go on is not put back behind a kill to where it was doubted`() throws {
        let book = book()
        #expect(book.arrive(Self.key, on: 0, lastRef: 8, at: mark(10)) != nil)
        let other = try #require(book.claim(Self.key, firstRef: 9, now: 50)?.place)
        book.stand(other, at: mark(40), lastRef: 12)
        let next = restored(written(book))
        let back = try #require(next.claim(Self.key, firstRef: 13, now: 1))
        #expect(back.mark == mark(40))
        next.stand(try #require(back.place), at: mark(60), lastRef: 14)
        // The same holds after the next kill. If the uncertain client was a different one, its entry still exists.
        let last = restored(written(next))
        #expect(last.goneCount == 2)
        #expect(last.claim(Self.key, firstRef: 17, now: 1)?.mark == mark(60))
        #expect(last.claim(Self.key, firstRef: 11, now: 1)?.mark == mark(10))
    }

    @Test func `what is read late from a socket that was left stands in nobody's way`() throws {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 0, lastRef: 21, at: mark(42)))
        book.depart(place, owesLoss: false, heard: 0, until: 60)
        // The loop last received data from that socket at time 50.
        let stray = try #require(book.arrive(Self.key, on: 1, lastRef: 15, at: mark(70), now: 60))
        #expect(book.book.takeDoubted(on: 1) == [stray])
        book.depart(stray, owesLoss: false, heard: 50, until: 60)
        let back = try #require(book.claim(Self.key, firstRef: 22, now: 70))
        #expect(back.mark == mark(42))
        book.stand(try #require(back.place), at: mark(90), lastRef: 25)
        book.depart(try #require(back.place), owesLoss: false, heard: 0, until: 60)
        #expect(book.claim(Self.key, firstRef: 26, now: 80)?.mark == mark(90))
    }

    @Test func `a window that has come less far than another is one, once it is heard`() throws {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 0, lastRef: 21, at: mark(42)))
        book.depart(place, owesLoss: false, heard: 0, until: 60)
        let window = try #require(book.arrive(Self.key, on: 1, lastRef: 15, at: mark(30), now: 60))
        book.stand(window, at: mark(35), lastRef: 16, heard: 61)
        book.depart(window, owesLoss: false, heard: 61, until: 60)
        #expect(book.claim(Self.key, firstRef: 22, now: 70)?.mark == mark(35))
        #expect(book.claim(Self.key, firstRef: 17, now: 71)?.mark == mark(35))
    }

    @Test func `who joins again on its own socket stands where it stood, and takes nobody's place`() throws {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 1, lastRef: 3, at: mark(10)))
        book.depart(place, owesLoss: false, heard: 0, until: 60)
        #expect(book.comeBack(to: place, lastRef: 4, at: mark(10)) == place)
        #expect(book.goneCount == 0 && book.count == 1)
        book.depart(place, owesLoss: false, heard: 0, until: 60)
        // The registry took another window of the same login for this one. That window has disconnected, too.
        let other = try #require(book.claim(Self.key, firstRef: 9, now: 1)?.place)
        book.stand(other, at: mark(30), lastRef: 12)
        book.depart(other, owesLoss: false, heard: 0, until: 60)
        let own = try #require(book.comeBack(to: place, lastRef: 5, at: mark(10)))
        book.stand(own, at: mark(10), lastRef: 5, heard: 1)
        #expect(own != other && book.goneCount == 1 && book.count == 2)
        #expect(book.claim(Self.key, firstRef: 13, now: 2)?.mark == mark(10))
    }

    @Test func `time takes them away`() throws {
        let book = book(maximum: 4)
        let keys = (0..<2).map { ResumeKey(high: $0, low: 0) }
        for (number, key) in keys.enumerated() {
            let place = try #require(book.arrive(key, on: 0, lastRef: 1, at: mark(UInt64(number))))
            book.depart(place, owesLoss: false, heard: 0, until: 60 + Int64(number))
        }
        book.expire(now: 60)
        #expect(book.goneCount == 1)
        book.expire(now: 61)
        #expect(book.goneCount == 0 && book.count == 0)
        #expect(book.book.arrival(keys[0], of: book.taker, firstRef: 2, on: 0, now: 1) == .unknown)
    }

    private func socket(_ number: UInt32, at address: UInt32 = 1) -> ResumeRegistry.Taker {
        ResumeRegistry.Taker(address: address, socket: number)
    }

    /// Lets a client join and disconnect. Returns false if there is no room.
    @discardableResult
    private func pass(_ key: UInt64, of taker: ResumeRegistry.Taker, _ book: Shelf, until: Int64 = 60) -> Bool {
        book.taker = taker
        guard let place = book.arrive(ResumeKey(high: key, low: 9), on: 0, lastRef: 1, at: mark(5)) else {
            return false
        }
        book.depart(place, owesLoss: false, heard: 0, until: until)
        return true
    }

    private func isKnown(_ key: UInt64, _ book: Shelf) -> Bool {
        book.claim(ResumeKey(high: key, low: 9), firstRef: 2, now: 1) != nil
    }

    @Test func `sockets with many channels push each other out, and nobody else`() {
        let book = book(maximum: 1000)
        for victim in 0..<20 { pass(UInt64(victim), of: socket(UInt32(victim)), book) }
        for number in 0..<5000 { pass(UInt64(1000 + number), of: socket(100 + UInt32(number / 100)), book, until: 90) }
        #expect(book.count <= 1000 && book.takeEvicted() >= 4000)
        #expect((0..<20).allSatisfy { isKnown(UInt64($0), book) })
    }

    @Test func `an address that takes most pushes out its own, however many sockets it has`() {
        let book = book(maximum: 1000)
        for victim in 0..<100 { pass(UInt64(victim), of: socket(UInt32(victim), at: 2), book) }
        for number in 0..<5000 { pass(UInt64(1000 + number), of: socket(100 + UInt32(number)), book, until: 90) }
        #expect((0..<100).allSatisfy { isKnown(UInt64($0), book) })
    }

    @Test func `an address whose channels all stay leaves room for others`() throws {
        let book = book(maximum: 100)
        book.taker = socket(1)
        let places = (0..<100).map { book.arrive(ResumeKey(high: $0, low: 1), on: 0, lastRef: 1, at: mark(1)) }
        #expect(places.filter { $0 == nil }.count == 25)
        for victim in 0..<25 { #expect(pass(UInt64(victim), of: socket(2, at: 2), book)) }
        #expect((0..<25).allSatisfy { isKnown(UInt64($0), book) })
    }

    /// Checks a small registry while clients come and go. It must answer with the position that a client left, or with
    /// `unknown`.
    @Test(arguments: 0..<100) func `whoever the book has dropped is unknown, and not new`(seed: Int) {
        var random = SeededRandom(seed: UInt64(seed))
        let book = Shelf(ResumeRegistry(maximum: 16, loops: 1))
        book.set(mark(1), of: 0)
        var refs: [UInt64: UInt32] = [:]
        for step in 0..<400 {
            let key = UInt64.random(in: 0..<40, using: &random)
            book.taker = socket(UInt32.random(in: 0..<8, using: &random), at: UInt32.random(in: 0..<3, using: &random))
            let ref = refs[key, default: 0] + 1
            let arrival = book.book.arrival(
                ResumeKey(high: key, low: 9), of: book.taker, firstRef: ref, on: 0, now: UInt64(step))
            #expect((arrival == .begins) == (ref == 1))
            var place: ResumeRegistry.Place?
            if case .goesOn(let claim) = arrival {
                #expect(claim.mark == mark(UInt64(ref - 1)), "it goes on where it was")
                place = claim.place
            } else {
                place = book.arrive(
                    ResumeKey(high: key, low: 9), on: 0, lastRef: ref, at: mark(UInt64(ref)), now: UInt64(step))
            }
            if let place {
                book.stand(place, at: mark(UInt64(ref)), lastRef: ref)
                book.depart(place, owesLoss: false, heard: 0, until: Int64(step / 4 + 30))
            }
            book.expire(now: Int64(step / 4))
            refs[key] = ref
            #expect(book.count <= 16)
        }
    }

    /// Checks windows of one browser that disconnect and return in any order, while the hub counts them as connected or
    /// as disconnected. No window may resume after its own position.
    @Test(arguments: 0..<200) func `whoever of one login comes back misses nothing`(seed: Int) throws {
        var random = SeededRandom(seed: UInt64(seed))
        let book = Shelf(ResumeRegistry(maximum: 64, loops: 1))
        struct Window {
            var ref: UInt32 = 0
            var stood: UInt64 = 0
            var place: ResumeRegistry.Place?
        }
        var windows = Array(repeating: Window(), count: 3)
        var end: UInt64 = 1
        var clock: UInt64 = 1
        for _ in 0..<100 {
            clock += 1
            end += UInt64.random(in: 0...5, using: &random)
            book.set(mark(end), of: 0)
            let number = Int.random(in: 0..<3, using: &random)
            var window = windows[number]
            if let place = window.place {
                if Bool.random(using: &random) {
                    window.stood = UInt64.random(in: window.stood...end, using: &random)
                    window.ref += 1
                    book.stand(place, at: mark(window.stood), lastRef: window.ref, heard: clock)
                } else {
                    book.depart(place, owesLoss: false, heard: clock, until: .max)
                    window.place = nil
                    if random.next() % 4 == 0 {
                        window.ref += 1
                        window.place = book.comeBack(to: place, lastRef: window.ref, at: mark(window.stood))
                        #expect(window.place != nil)
                    }
                }
            } else {
                // A newly opened page begins at the log's end.
                let isNew = window.ref == 0 || random.next() % 8 == 0
                window.ref = isNew ? 1 : window.ref + UInt32.random(in: 1...4, using: &random)
                let claim = book.claim(Self.key, firstRef: window.ref, now: clock)
                if isNew {
                    #expect(claim == nil)
                    window.stood = end
                } else {
                    let goesOn = try #require(claim?.mark.offset)
                    #expect(goesOn <= window.stood)
                    window.stood = goesOn
                }
                window.place =
                    claim?.place ?? book.arrive(Self.key, on: 0, lastRef: window.ref, at: mark(window.stood))
            }
            windows[number] = window
        }
    }

    /// Checks windows of a few logins that come back after any time, while entries expire and are pushed out. A window
    /// either resumes at or before its own position, or is told that it may have missed something.
    @Test(arguments: 0..<300) func `whoever of one login comes back after any time misses nothing in silence`(
        seed: Int
    ) throws {
        var random = SeededRandom(seed: UInt64(seed))
        let book = Shelf(ResumeRegistry(maximum: [3, 6, 64][seed % 3], loops: 1))
        struct Window {
            var ref: UInt32 = 0
            var stood: UInt64 = 0
            var isHere = false
            var place: ResumeRegistry.Place?
        }
        var windows = Array(repeating: Window(), count: 6)
        var end: UInt64 = 1
        for clock in 1...300 {
            end += UInt64.random(in: 0...5, using: &random)
            book.set(mark(end), of: 0)
            book.expire(now: Int64(clock))
            let number = windows.indices.randomElement(using: &random) ?? 0
            let key = ResumeKey(high: UInt64(number % 2), low: 5)
            book.taker = socket(UInt32(number))
            var window = windows[number]
            if window.isHere, Bool.random(using: &random) {
                window.ref += UInt32.random(in: 1...3, using: &random)
                window.stood = UInt64.random(in: window.stood...end, using: &random)
                if let place = window.place {
                    book.stand(place, at: mark(window.stood), lastRef: window.ref, heard: UInt64(clock))
                }
            } else if window.isHere {
                if let place = window.place {
                    book.depart(place, owesLoss: false, heard: UInt64(clock), until: Int64(clock + 20))
                }
                (window.isHere, window.place) = (false, nil)
            } else {
                let isNew = window.ref == 0 || random.next() % 8 == 0
                window.ref = isNew ? 1 : window.ref + UInt32.random(in: 1...4, using: &random)
                switch book.book.arrival(key, of: book.taker, firstRef: window.ref, on: 0, now: UInt64(clock)) {
                case .begins:
                    #expect(isNew)
                    window.stood = end
                case .goesOn(let claim):
                    #expect(claim.mark.offset <= window.stood || claim.owesLoss, "seed \(seed), at \(clock)")
                    window.stood = claim.mark.offset
                    window.place = claim.place
                case .unknown: window.stood = end
                }
                window.place =
                    window.place
                    ?? book.arrive(key, on: 0, lastRef: window.ref, at: mark(window.stood), now: UInt64(clock))
                window.isHere = true
            }
            windows[number] = window
        }
    }

    @Test func `two windows that come back after the grace are both told`() throws {
        let book = book()
        for (ref, offset) in [(100, 10), (101, 20)] as [(UInt32, UInt64)] {
            let place = try #require(book.arrive(Self.key, on: 0, lastRef: ref, at: mark(offset)))
            book.depart(place, owesLoss: false, heard: 0, until: 5)
        }
        book.expire(now: 5)
        #expect(book.book.arrival(Self.key, of: book.taker, firstRef: 102, on: 0, now: 1) == .unknown)
        let first = try #require(book.arrive(Self.key, on: 0, lastRef: 102, at: mark(90)))
        let second = try #require(book.claim(Self.key, firstRef: 103, now: 2))
        #expect(second.owesLoss)
        book.stand(try #require(second.place), at: mark(95), lastRef: 104, heard: 3)
        // The first one is heard again, so that both are known. They come back in time now.
        book.stand(first, at: mark(95), lastRef: 140, heard: 3)
        book.depart(first, owesLoss: false, heard: 3, until: 99)
        let again = try #require(book.claim(Self.key, firstRef: 142, now: 4))
        #expect(!again.owesLoss)
    }

    @Test func `that a window was dropped is known after a restart`() throws {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 0, lastRef: 50, at: mark(10)))
        book.depart(place, owesLoss: false, heard: 0, until: 5)
        _ = try #require(book.arrive(Self.key, on: 0, lastRef: 7, at: mark(90)))
        var file = written(book)
        book.expire(now: 5)
        file = written(book, over: file)
        #expect(try #require(restored(file).claim(Self.key, firstRef: 51, now: 1)).owesLoss)
    }

    // MARK: Written down

    private static let head = ResumeRegistry.Head(
        secret: .init(first: 3, second: 4), boot: 5, bootSeconds: 1_700_000_000)

    private func written(_ book: Shelf, over file: [UInt8] = []) -> [UInt8] {
        applying(book.takeChanges()[...], to: file.isEmpty ? Self.head.bytes : file)
    }

    private func applying(_ changes: ArraySlice<(bytes: [UInt8], at: UInt64)>, to file: [UInt8]) -> [UInt8] {
        var file = file
        for (bytes, place) in changes {
            let end = Int(place) + bytes.count
            if file.count < end { file += [UInt8](repeating: 0, count: end - file.count) }
            file.replaceSubrange(Int(place)..<end, with: bytes)
        }
        return file
    }

    private func restored(_ file: [UInt8], now: Int64 = 1, until: Int64 = 99) -> Shelf {
        let book = Shelf(ResumeRegistry(maximum: 100, loops: 2))
        book.book.restore(file.span.bytes, now: now, until: until)
        return book
    }

    /// Checks the position that is certain for each client: everything before its own acknowledged offset, or before
    /// its loop's.
    @Test(arguments: 0..<200) func `wherever a process ends in writing down, nobody goes on behind where it stood`(
        seed: Int
    ) throws {
        var random = SeededRandom(seed: UInt64(seed))
        let book = Shelf(ResumeRegistry(maximum: 64, loops: 1))
        var end: UInt64 = 10
        book.set(mark(end), of: 0)
        struct Client {
            var own: UInt64?
            let key: ResumeKey
            let place: ResumeRegistry.Place
        }
        var clients: [Client] = []
        for number in 0..<UInt64(Int.random(in: 1...6, using: &random)) {
            let key = ResumeKey(high: number, low: 1)
            let place = try #require(book.arrive(key, on: 0, lastRef: 1, at: mark(end)))
            clients.append(Client(own: end, key: key, place: place))
        }
        var file = written(book)
        for _ in 0..<60 {
            let next = end + UInt64.random(in: 0...5, using: &random)
            for number in clients.indices {
                let own = clients[number].own
                switch Int.random(in: 0..<4, using: &random) {
                // The hub has sent the client changes after the loop's acknowledged offset.
                case 0 where next > end: clients[number].own = own ?? end
                case 1: if let own { clients[number].own = UInt64.random(in: own...max(own, end), using: &random) }
                case 2: clients[number].own = nil
                default: continue
                }
                book.stand(clients[number].place, at: clients[number].own.map { mark($0) }, lastRef: 1)
            }
            end = next
            book.set(mark(end), of: 0)
            let changes = book.takeChanges()
            let count = Int.random(in: 0...changes.count, using: &random)
            let torn = restored(applying(changes.prefix(count), to: file))
            for client in clients {
                let claim = try #require(torn.claim(client.key, firstRef: 2, now: 1))
                #expect(claim.mark.offset <= client.own ?? end)
            }
            file = applying(changes[...], to: file)
        }
    }

    @Test func `whoever came back is known wherever the writing ends, also when its former place is another's`() throws
    {
        let book = book()
        let place = try #require(book.arrive(Self.key, on: 0, lastRef: 3, at: mark(10)))
        let file = written(book)
        #expect(book.claim(Self.key, firstRef: 9, now: 50)?.place != place)
        book.depart(place, owesLoss: false, heard: 0, until: 60)
        #expect(book.arrive(ResumeKey(high: 5, low: 5), on: 0, lastRef: 1, at: mark(40)) == place)
        let changed = book.book
        for count in 0...book.takeChanges().count {
            let once = Shelf(changed)
            let left = applying(once.takeChanges().prefix(count), to: file)
            #expect(restored(left).claim(Self.key, firstRef: 12, now: 1)?.mark == mark(10), "after \(count)")
            // The disk refused the other records and accepts all of them later.
            once.book.touchAll()
            let again = once.takeChanges()
            for more in 0...again.count {
                let torn = restored(applying(again.prefix(more), to: left))
                #expect(torn.claim(Self.key, firstRef: 12, now: 1)?.mark == mark(10), "after \(count) and \(more)")
            }
        }
    }

    @Test func `what was written down is there after a restart, and all have gone`() throws {
        let book = book()
        let here = try #require(book.arrive(Self.key, on: 0, lastRef: 3, at: mark(10)))
        let shared = try #require(book.arrive(ResumeKey(high: 5, low: 5), on: 1, lastRef: 3, at: mark(10)))
        let left = try #require(book.arrive(ResumeKey(high: 6, low: 5), on: 1, lastRef: 3, at: mark(10)))
        var file = written(book)
        book.stand(here, at: mark(17), lastRef: 8)
        book.stand(shared, at: nil, lastRef: 3)
        book.set(mark(130), of: 1)
        book.leave(left)
        file = written(book, over: file)
        #expect(book.takeChanges().isEmpty)
        #expect(ResumeRegistry.Head(of: file.span.bytes) == Self.head)
        let again = restored(file)
        #expect(again.goneCount == 2)
        #expect(again.claim(Self.key, firstRef: 8, now: 1) == nil)
        #expect(again.claim(Self.key, firstRef: 9, now: 1)?.mark == mark(17))
        #expect(again.claim(ResumeKey(high: 5, low: 5), firstRef: 9, now: 1)?.mark == mark(130))
        #expect(again.goneCount == 0)
        let never = restored(file)
        never.expire(now: 99)
        #expect(never.count == 0)
    }

    @Test func `who does not come back is not expected for as long as restarts follow`() throws {
        let book = book()
        // One client has an earlier socket, which the hub counts as open, and a new one. The other client is unrelated.
        _ = try #require(book.arrive(Self.key, on: 0, lastRef: 3, at: mark(10)))
        _ = try #require(book.claim(Self.key, firstRef: 4, now: 1)?.place)
        let other = ResumeKey(high: 5, low: 5)
        _ = try #require(book.arrive(other, on: 0, lastRef: 3, at: mark(10)))
        let first = restored(written(book), until: 60)
        let place = try #require(first.claim(Self.key, firstRef: 5, now: 1)?.place)
        first.stand(place, at: mark(50), lastRef: 5)
        #expect(first.goneCount == 2)
        let second = restored(written(first), now: 50, until: 110)
        #expect(second.goneCount == 3)
        second.expire(now: 60)
        #expect(second.goneCount == 1)
        #expect(second.claim(other, firstRef: 9, now: 1) == nil)
        #expect(second.claim(Self.key, firstRef: 9, now: 1)?.mark == mark(50))
    }

    @Test(arguments: 0..<100) func `a damaged file is read as far as it is whole`(seed: Int) throws {
        var random = SeededRandom(seed: UInt64(seed))
        let book = book()
        for number in 0..<20 {
            _ = book.arrive(ResumeKey(high: UInt64(number), low: 1), on: 0, lastRef: 1, at: mark(UInt64(number)))
        }
        var file = written(book)
        for _ in 0..<5 {
            file[Int.random(in: file.indices, using: &random)] ^= UInt8.random(in: 1...255, using: &random)
        }
        if Bool.random(using: &random) { file.removeLast(Int.random(in: 0..<file.count, using: &random)) }
        let again = restored(file)
        for number in 0..<20 {
            let claim = again.claim(ResumeKey(high: UInt64(number), low: 1), firstRef: 2, now: 1)
            #expect(claim == nil || claim?.mark == mark(UInt64(number)))
        }
    }
}
