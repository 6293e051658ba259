import Bytes
import EventLog

/// Identity of a channel across sockets: channels of the same login with the same topic and bindings have the same key.
public struct ResumeKey: Hashable, Sendable {
    let high: UInt64
    let low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }
}

/// Positions of channels whose clients may come back. The book has channels that are here and, for a grace period,
/// channels whose sockets broke without a leave. The loops report arrivals, acknowledged positions and departures; the
/// book says from where a joining client resumes. The book has no clock.
///
/// A client numbers its messages for as long as it lives, across all of its sockets. So a client whose first number is
/// higher than a channel's last one may be the same client; a client that begins at one is another. Several clients of
/// one login (windows of a browser) cannot be told apart for sure. A joining client then resumes from the lowest of
/// their positions: some changes may come twice, and none is left out.
public struct ResumeRegistry: Sendable {
    /// Index of a channel's entry in the book, valid while the channel is here.
    public typealias Place = UInt32

    public struct Claim: Hashable, Sendable {
        public let mark: EventLogPosition
        /// True if something was missing and the client was not told.
        public let owesLoss: Bool
        /// Index of the entry that the client has from here on; nil if the book has no room.
        public let place: Place?
    }

    /// Answer about a joining client, from its message numbers and this book. The book has a maximum and drops entries.
    /// A client that continues gets the place it left, or `unknown`, which the client must be told.
    public enum Arrival: Hashable, Sendable {
        /// The client's first message ever: there is nothing that it could have missed.
        case begins
        case goesOn(Claim)
        /// The client was connected before, and nothing is known of it: it never was in the book, its grace period has
        /// passed, or its entry was dropped for lack of room.
        case unknown
    }

    /// Address and socket of a client, against which an entry counts.
    public struct Taker: Hashable, Sendable {
        let address: UInt32
        let socket: UInt32

        public init(address: UInt32, socket: UInt32) {
            self.address = address
            self.socket = socket
        }
    }

    /// Position that a client has acknowledged, and whether the client was not told of something missing.
    public typealias Stand = (mark: EventLogPosition, owesLoss: Bool)

    struct Entry: Sendable {
        enum Standing: UInt8 { case free, here, gone }

        var standing = Standing.free
        /// True if the entry has a mark of its own. Until then its loop's mark applies.
        var hasOwnMark = false
        var owesLoss = false
        var loop: UInt16 = 0
        /// Highest number seen among the messages of the entry's client.
        var lastRef: UInt32 = 0
        var key = ResumeKey(high: 0, low: 0)
        var mark = EventLogPosition(epoch: 0, offset: 0)
        /// Expiry in seconds on the clock of the book's owner, which never jumps.
        var expires: Int64 = 0
        var taker = Taker(address: 0, socket: 0)
        /// True if the entry was gone at a restart, which has given it a new grace period.
        var outlivedRestart = false
        /// Time at which a joining client was taken for the entry's client, on the clock of the entry's loop; 0 for
        /// never.
        var succeeded: UInt64 = 0
        /// True if the entry's client may be the same as that of another entry with the same key, and has not answered
        /// since. That is so if a joining client was taken for it before a restart, or if another entry had a higher
        /// number when it arrived. A loop that stood still may read messages of a socket that the client left long ago.
        var isDoubtful = false
        /// Time at which the entry arrived in doubt.
        var doubtedAt: UInt64 = 0
        /// Index of the next entry with the same key; the entry's own index if there is none.
        var next: UInt32 = 0
        var isDirty = false
    }

    private let maximum: Int
    var entries: [Entry] = []
    private var free: [UInt32] = []
    private var firsts: [ResumeKey: UInt32] = [:]
    /// Entries that have gone, with their expiry, in order of expiry. Entries before `leavingHead` are done.
    private var leaving: [(place: UInt32, expires: Int64)] = []
    private var leavingHead = 0
    public private(set) var goneCount = 0
    /// Number of entries dropped before their time and of clients that found no room, since the last question.
    private var evicted = 0
    private var takenByAddress: [UInt32: Int] = [:]
    private var takenBySocket: [UInt32: Int] = [:]
    /// Seed that decides which entries are considered for an eviction.
    private var lot: UInt64 = 1
    /// Positions that the channels of each loop have acknowledged, for channels without a mark of their own.
    private(set) var loopMarks: [EventLogPosition?]
    private var doubted: Set<UInt32> = []
    var dirty: [UInt32] = []
    /// Entries that are certainly in use on the disk.
    var written: Set<UInt32> = []
    /// Entries that were last given to be written: those in use, and those that are free now.
    var underWay: (kept: [UInt32], left: [UInt32]) = ([], [])
    var marksAreDirty = false

    public init(maximum: Int, loops: Int) {
        precondition(maximum > 0 && loops > 0, "a book of nothing")
        self.maximum = maximum
        loopMarks = Array(repeating: nil, count: loops)
    }

    public var count: Int { entries.count - free.count }

    // MARK: Clients that are here

    /// Adds an entry and returns its index; nil if there is no room. The client is then `unknown` when it comes back.
    public mutating func arrive(
        _ key: ResumeKey, of taker: Taker, on loop: Int, lastRef: UInt32, at mark: EventLogPosition, owesLoss: Bool,
        now: UInt64
    ) -> Place? {
        guard let place = takeFree(for: taker) else {
            evicted += 1
            return nil
        }
        var isDoubtful = false
        forEach(of: key) { _, entry in if entry.lastRef > lastRef { isDoubtful = true } }
        entries[Int(place)] = Entry(
            standing: .here, hasOwnMark: true, owesLoss: owesLoss, loop: UInt16(loop), lastRef: lastRef, key: key,
            mark: mark, taker: taker, isDoubtful: isDoubtful, doubtedAt: isDoubtful ? now : 0)
        link(place)
        if isDoubtful { doubted.insert(place) }
        return place
    }

    /// Records the position that an entry's client has acknowledged: the mark, or its loop's mark if that is nil.
    /// `heard` is a time after which something came from the client.
    public mutating func stand(
        _ place: Place, at mark: EventLogPosition?, lastRef: UInt32, owesLoss: Bool = false, heard: UInt64
    ) {
        precondition(entries[Int(place)].standing == .here, "who is not here stands nowhere")
        hear(place, heard)
        entries[Int(place)].hasOwnMark = mark != nil
        entries[Int(place)].owesLoss = owesLoss
        if let mark { entries[Int(place)].mark = mark }
        entries[Int(place)].lastRef = max(entries[Int(place)].lastRef, lastRef)
        touch(place)
    }

    /// Ends a doubt: a client that is heard after the doubt began is a client of its own.
    private mutating func hear(_ place: Place, _ heard: UInt64) {
        if heard > entries[Int(place)].succeeded { entries[Int(place)].succeeded = 0 }
        if heard > entries[Int(place)].doubtedAt { entries[Int(place)].isDoubtful = false }
    }

    public mutating func set(_ mark: EventLogPosition, of loop: Int) {
        guard loopMarks[loop] != mark else { return }
        loopMarks[loop] = mark
        marksAreDirty = true
    }

    /// Removes the entry of a client that left on purpose, and is not expected back.
    public mutating func leave(_ place: Place) {
        precondition(entries[Int(place)].standing == .here, "who is not here cannot leave")
        release(place)
    }

    /// Marks an entry as gone, because its socket broke. `heard` is a time after which something came from its client.
    /// If that is after another client was taken for this one, the two are different clients.
    public mutating func depart(_ place: Place, owesLoss: Bool, heard: UInt64, until expires: Int64) {
        precondition(entries[Int(place)].standing == .here, "who is not here cannot go")
        hear(place, heard)
        let entry = entries[Int(place)]
        guard entry.succeeded == 0, let mark = mark(of: entry) else { return release(place) }
        entries[Int(place)].standing = .gone
        entries[Int(place)].outlivedRestart = false
        entries[Int(place)].hasOwnMark = true
        entries[Int(place)].mark = mark
        entries[Int(place)].owesLoss = owesLoss
        entries[Int(place)].expires = expires
        leaving.append((place, expires))
        goneCount += 1
        touch(place)
        dropPast()
    }

    private func mark(of entry: Entry) -> EventLogPosition? {
        entry.hasOwnMark ? entry.mark : loopMarks[Int(entry.loop)]
    }

    // MARK: Clients that come

    /// Decides from the number of a client's first message on its socket whether the client begins or resumes, and
    /// where.
    ///
    /// - Parameter key: nil for a client that cannot be told from others, and so is not in the book.
    public mutating func arrival(
        _ key: ResumeKey?, of taker: Taker, firstRef: UInt32, on loop: Int, now: UInt64
    ) -> Arrival {
        if let claim = key.flatMap({ claim($0, of: taker, firstRef: firstRef, on: loop, now: now) }) {
            return .goesOn(claim)
        }
        return firstRef > 1 ? .unknown : .begins
    }

    private mutating func claim(
        _ key: ResumeKey, of taker: Taker, firstRef: UInt32, on loop: Int, now: UInt64
    ) -> Claim? {
        var claimed: Stand?
        var closest: UInt32?
        let passesOverDoubtful = hasPredecessor(of: firstRef, key)
        func mayBe(_ entry: Entry) -> Bool {
            entry.lastRef < firstRef && !(passesOverDoubtful && entry.isDoubtful)
        }
        forEach(of: key) { place, entry in
            guard mayBe(entry), entry.succeeded == 0, let mark = mark(of: entry) else { return }
            let least = claimed.map { $0.mark.offset < mark.offset ? $0.mark : mark } ?? mark
            // If a new log was begun, offsets of the two epochs cannot be compared: the other one may be further back.
            let isOfAnotherLog = claimed.map { $0.mark.epoch != mark.epoch } ?? false
            claimed = (least, entry.owesLoss || claimed?.owesLoss == true || isOfAnotherLog)
            if closest.map({ entries[Int($0)].lastRef < entry.lastRef }) ?? true { closest = place }
        }
        guard let claimed, let closest else { return nil }
        // A client that comes later for one of the other entries may be the client that stood at this mark.
        var others: [UInt32] = []
        forEach(of: key) { place, entry in
            if place != closest, entry.standing == .gone, mayBe(entry) { others.append(place) }
        }
        for place in others where claimed.mark.offset < entries[Int(place)].mark.offset {
            let isOfAnotherLog = claimed.mark.epoch != entries[Int(place)].mark.epoch
            entries[Int(place)].owesLoss = entries[Int(place)].owesLoss || isOfAnotherLog
            entries[Int(place)].mark = claimed.mark
            touch(place)
        }
        return Claim(
            mark: claimed.mark, owesLoss: claimed.owesLoss,
            place: takeOver(closest, from: claimed, key, of: taker, firstRef, loop, now))
    }

    /// True if the client's numbers continue those of an entry that is not in doubt. The client is then that one. A
    /// doubtful entry has most likely come back under another entry, and would put the client back by far.
    private func hasPredecessor(of firstRef: UInt32, _ key: ResumeKey) -> Bool {
        var isFound = false
        forEach(of: key) { _, entry in
            guard entry.lastRef < firstRef, !entry.isDoubtful, entry.succeeded == 0 else { return }
            if firstRef - entry.lastRef <= Self.lostOnTheWay { isFound = true }
        }
        return isFound
    }

    /// Number of a client's messages that may never have arrived before its socket was cut.
    private static let lostOnTheWay: UInt32 = 8

    /// Returns the entry to a client that left `place` and joins again on the same socket. If another client was taken
    /// for it meanwhile, adds a new entry.
    public mutating func comeBack(
        to place: Place?, _ key: ResumeKey, of taker: Taker, on loop: Int, lastRef: UInt32, at stand: Stand,
        now: UInt64
    ) -> Place? {
        guard let place, entries[Int(place)].standing == .gone, entries[Int(place)].key == key,
            entries[Int(place)].mark == stand.mark, entries[Int(place)].lastRef <= lastRef
        else {
            return arrive(
                key, of: taker, on: loop, lastRef: lastRef, at: stand.mark, owesLoss: stand.owesLoss, now: now)
        }
        return takeOver(place, from: stand, key, of: taker, lastRef, loop, now)
    }

    /// Gives an entry to a joining client. The book never knows less of this client than of the one that went, because
    /// the process may end at any moment.
    private mutating func takeOver(
        _ place: Place, from stand: Stand, _ key: ResumeKey, of taker: Taker, _ firstRef: UInt32,
        _ loop: Int, _ now: UInt64
    ) -> Place? {
        guard entries[Int(place)].standing == .gone else {
            entries[Int(place)].succeeded = now
            doubted.insert(place)
            touch(place)
            return arrive(
                key, of: taker, on: loop, lastRef: firstRef, at: stand.mark, owesLoss: stand.owesLoss, now: now)
        }
        goneCount -= 1
        count(entries[Int(place)].taker, -1)
        count(taker, 1)
        entries[Int(place)].taker = taker
        entries[Int(place)].standing = .here
        entries[Int(place)].outlivedRestart = false
        entries[Int(place)].isDoubtful = false
        entries[Int(place)].loop = UInt16(loop)
        entries[Int(place)].hasOwnMark = true
        entries[Int(place)].mark = stand.mark
        entries[Int(place)].owesLoss = stand.owesLoss
        entries[Int(place)].lastRef = firstRef
        touch(place)
        return place
    }

    /// Returns the doubtful entries of a loop, whose clients must show that they are clients of their own. The loop
    /// asks until they have answered or gone: messages that were under way at the first question prove nothing.
    public mutating func takeDoubted(on loop: Int) -> [Place] {
        doubted = doubted.filter { place in
            let entry = entries[Int(place)]
            return entry.standing == .here && (entry.succeeded != 0 || entry.isDoubtful)
        }
        return doubted.filter { Int(entries[Int($0)].loop) == loop }.sorted()
    }

    private func forEach(of key: ResumeKey, _ body: (UInt32, Entry) -> Void) {
        guard var place = firsts[key] else { return }
        while true {
            let entry = entries[Int(place)]
            assert(entry.key == key && entry.standing != .free, "a stranger among those of one key")
            body(place, entry)
            if entry.next == place { return }
            place = entry.next
        }
    }

    // MARK: Room

    /// Removes the entries whose grace period is over.
    public mutating func expire(now: Int64) {
        while leavingHead < leaving.count, leaving[leavingHead].expires <= now { forgetFirst() }
        if leavingHead > 1024, leavingHead * 2 > leaving.count {
            leaving.removeFirst(leavingHead)
            leavingHead = 0
        }
    }

    private mutating func forgetFirst() {
        let (place, expires) = leaving[leavingHead]
        leavingHead += 1
        if isGone(place, until: expires) { release(place) }
    }

    /// True if the place still belongs to the entry that is gone until `expires`; another entry may have taken the
    /// place since.
    private func isGone(_ place: UInt32, until expires: Int64) -> Bool {
        entries[Int(place)].standing == .gone && entries[Int(place)].expires == expires
    }

    /// Removes entries that came back or were dropped from the list of gone entries, before the list grows beyond the
    /// book.
    private mutating func dropPast() {
        guard leaving.count - leavingHead > 2 * maximum + 1024 else { return }
        leaving = leaving[leavingHead...].filter { isGone($0.place, until: $0.expires) }
        leavingHead = 0
    }

    /// Returns how many entries were dropped before their time, and how many clients found no room, since the last
    /// call.
    public mutating func takeEvicted() -> Int {
        defer { evicted = 0 }
        return evicted
    }

    /// Largest number of entries that one address may take: three quarters of the book.
    private var maximumOfAddress: Int { max(1, maximum - maximum / 4) }

    private mutating func takeFree(for taker: Taker) -> UInt32? {
        let isOverAllowance = takenByAddress[taker.address, default: 0] >= maximumOfAddress
        if !isOverAllowance {
            if let place = free.popLast() { return place }
            if entries.count < maximum {
                entries.append(Entry())
                return UInt32(entries.count - 1)
            }
        }
        guard let place = dispensable(for: taker, onlyOfAddress: isOverAllowance) else { return nil }
        release(place)
        evicted += 1
        return free.popLast()
    }

    /// Returns the entry that makes room for a newcomer: the gone entry whose address, and then whose socket, takes
    /// most of the book. Nil if that is the newcomer. Only a sample is considered, so that a crowd costs no more than a
    /// few.
    private mutating func dispensable(for taker: Taker, onlyOfAddress: Bool) -> UInt32? {
        var best: (place: UInt32, weight: Weight)?
        let newcomer = weight(of: taker)
        for _ in 0..<Self.sampleSize where leavingHead < leaving.count {
            lot = lot &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            let left = UInt64(leaving.count - leavingHead)
            let (place, expires) = leaving[leavingHead + Int((lot >> 33) % left)]
            let entry = entries[Int(place)]
            guard isGone(place, until: expires), !onlyOfAddress || entry.taker.address == taker.address else {
                continue
            }
            let weight = weight(of: entry.taker)
            if weight < newcomer { continue }
            guard let known = best else {
                best = (place, weight)
                continue
            }
            // Among equal takers, the one that is gone longest.
            let isLonger = expires < entries[Int(known.place)].expires
            if known.weight < weight || known.weight == weight && isLonger { best = (place, weight) }
        }
        return best?.place
    }

    private static let sampleSize = 32

    private struct Weight: Hashable, Comparable {
        let ofAddress: Int
        let ofSocket: Int

        static func < (one: Weight, other: Weight) -> Bool {
            (one.ofAddress, one.ofSocket) < (other.ofAddress, other.ofSocket)
        }
    }

    private func weight(of taker: Taker) -> Weight {
        Weight(
            ofAddress: takenByAddress[taker.address, default: 0], ofSocket: takenBySocket[taker.socket, default: 0])
    }

    private mutating func count(_ taker: Taker, _ change: Int) {
        let (ofAddress, ofSocket) = (
            takenByAddress[taker.address, default: 0] + change, takenBySocket[taker.socket, default: 0] + change
        )
        assert(ofAddress >= 0 && ofSocket >= 0, "nobody takes less than nothing")
        takenByAddress[taker.address] = ofAddress == 0 ? nil : ofAddress
        takenBySocket[taker.socket] = ofSocket == 0 ? nil : ofSocket
    }

    private mutating func link(_ place: UInt32) {
        entries[Int(place)].next = firsts[entries[Int(place)].key] ?? place
        firsts[entries[Int(place)].key] = place
        count(entries[Int(place)].taker, 1)
        touch(place)
    }

    private mutating func release(_ place: UInt32) {
        unlink(place)
        count(entries[Int(place)].taker, -1)
        if entries[Int(place)].standing == .gone { goneCount -= 1 }
        let isDirty = entries[Int(place)].isDirty
        entries[Int(place)] = Entry()
        entries[Int(place)].isDirty = isDirty
        free.append(place)
        touch(place)
    }

    private mutating func unlink(_ place: UInt32) {
        let entry = entries[Int(place)]
        guard var before = firsts[entry.key] else { preconditionFailure("an entry that nobody finds") }
        if before == place {
            firsts[entry.key] = entry.next == place ? nil : entry.next
            return
        }
        while entries[Int(before)].next != place {
            precondition(entries[Int(before)].next != before, "an entry that nobody finds")
            before = entries[Int(before)].next
        }
        entries[Int(before)].next = entry.next == place ? before : entry.next
    }

    /// Marks all entries as not written, because nothing shows what was written last.
    public mutating func touchAll() {
        marksAreDirty = true
        underWay = ([], [])
        for place in entries.indices { touch(UInt32(place)) }
    }

    private mutating func touch(_ place: UInt32) {
        guard !entries[Int(place)].isDirty else { return }
        entries[Int(place)].isDirty = true
        dirty.append(place)
    }

    // MARK: After a restart

    /// Restores the entries that an earlier process wrote. All entries that were here are now gone.
    mutating func restore(_ written: [Entry?], _ marks: [EventLogPosition?], now: Int64, until expires: Int64) {
        precondition(entries.isEmpty, "a book that was begun is not restored")
        for var entry in written.prefix(maximum) {
            let place = UInt32(entries.count)
            entries.append(Entry())
            let isHere = entry?.standing == .here
            if isHere, let found = entry, !found.hasOwnMark {
                let mark = Int(found.loop) < marks.count ? marks[Int(found.loop)] : nil
                if let mark { entry?.mark = mark } else { entry = nil }
            }
            guard var entry, entry.standing == .here || entry.standing == .gone && entry.expires > now else {
                free.append(place)
                continue
            }
            entry.standing = .gone
            entry.hasOwnMark = true
            // The absence of the hub does not count against a client, but only once. A client that has come back may
            // have left an entry at its former position. With every restart, that entry would put the client back
            // there. The new expiry is not later than that of clients that leave from now on, because the list is in
            // order.
            entry.expires = isHere || !entry.outlivedRestart ? expires : min(entry.expires, expires)
            entry.outlivedRestart = true
            entries[Int(place)] = entry
            leaving.append((place, entry.expires))
            goneCount += 1
            link(place)
        }
        leaving.sort { $0.expires < $1.expires }
    }
}
