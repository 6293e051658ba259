import Bytes
import EventLog

/// Identity of a channel across sockets. Channels of the same login with the same topic and bindings have the same key.
public struct ResumeKey: Hashable, Sendable {
    public let high: UInt64
    public let low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }
}

/// Positions of channels whose clients may return. The registry has entries for connected channels and, for a grace
/// period, for channels whose sockets broke without a leave. The loops report arrivals, acknowledged positions and
/// departures. The registry decides from which position a joining client resumes. It has no clock.
///
/// A client numbers its messages across all its sockets. So a client whose first number on a socket is higher than a
/// channel's last number may be that channel's client. A client that begins at one is a new one. Several clients of one
/// login (browser windows) cannot be distinguished reliably. A joining client then resumes from the lowest of their
/// positions: it may receive some changes twice, but misses none. If it may be one whose entry was dropped, it is told.
public struct ResumeRegistry: Sendable {
    /// Index of a channel's entry in the registry, valid while the channel is connected.
    public typealias Place = UInt32

    /// Position from which a returning client resumes, with its entry in the registry.
    public struct Claim: Hashable, Sendable {
        public let mark: EventLogPosition
        /// True if the client may have missed something and the hub has not told it.
        public let owesLoss: Bool
        /// Index of the returning client's entry from now on; nil if the registry has no room.
        public let place: Place?

        public init(mark: EventLogPosition, owesLoss: Bool, place: Place?) {
            self.mark = mark
            self.owesLoss = owesLoss
            self.place = place
        }
    }

    /// Decision about a joining client, from the number of its first message and the registry's entries.
    public enum Arrival: Hashable, Sendable {
        /// The client sends its first message ever, so that it cannot have missed anything.
        case begins
        /// The client returns and resumes from the position in the claim.
        case goesOn(Claim)
        /// The client was connected before, but the registry has no entry for it: it never had one, its grace period is
        /// over, or the entry was dropped for lack of room. The hub must tell the client.
        case unknown
    }

    /// Address and socket of a client, against whose shares of the registry its entries count.
    public struct Taker: Hashable, Sendable {
        let address: UInt32
        let socket: UInt32

        public init(address: UInt32, socket: UInt32) {
            self.address = address
            self.socket = socket
        }
    }

    /// Position that a client has acknowledged, and whether the hub must still tell the client that something may be
    /// missing.
    public typealias Stand = (mark: EventLogPosition, owesLoss: Bool)

    struct Entry: Sendable {
        enum Standing: UInt8 { case free, here, gone }

        var standing = Standing.free
        /// True if the entry has its own acknowledged position. Otherwise the position of its loop applies.
        var hasOwnMark = false
        var owesLoss = false
        var loop: UInt16 = 0
        /// Highest message number (ref) that the hub has received from the entry's client.
        var lastRef: UInt32 = 0
        var key = ResumeKey(high: 0, low: 0)
        var mark = EventLogPosition(epoch: 0, offset: 0)
        /// Expiry time in seconds, on the clock of the registry's owner (a store), which never jumps.
        var expires: Int64 = 0
        var taker = Taker(address: 0, socket: 0)
        /// True if the entry's client was already disconnected at a restart, which gave the entry another grace period.
        var outlivedRestart = false
        /// Monotonic time in nanoseconds at which the registry took a joining client for this entry's client; 0 if
        /// never.
        var succeeded: UInt64 = 0
        /// True if the entry may belong to the same client as another entry with the same key, and the client has not
        /// answered since. This is so if a joining client was taken for it before a restart, or if another entry had a
        /// higher number when this one arrived. A stalled loop may still read messages from a socket that the client
        /// has left long ago.
        var isDoubtful = false
        /// Monotonic time in nanoseconds at which the entry was added in doubt; 0 if it was not.
        var doubtedAt: UInt64 = 0
        /// Index of the next entry with the same key; its own index if it is the last one.
        var next: UInt32 = 0
        /// True if other clients of the key were dropped, as the file says after a restart.
        var hasDroppedSiblings = false
        /// True if the entry has changes that `takeChanges` has not returned yet.
        var isDirty = false
    }

    private let maximum: Int
    var entries: [Entry] = []
    private var free: [UInt32] = []
    private var firsts: [ResumeKey: UInt32] = [:]
    /// Indices of the entries of disconnected clients with their expiry time, in order of expiry. Elements before
    /// `leavingHead` have been dealt with.
    private var leaving: [(place: UInt32, expires: Int64)] = []
    private var leavingHead = 0
    public private(set) var goneCount = 0
    /// Number of entries dropped before their grace period ended, and of clients for which there was no room, since the
    /// last `takeEvicted`.
    private var evicted = 0
    private var takenByAddress: [UInt32: Int] = [:]
    private var takenBySocket: [UInt32: Int] = [:]
    /// State of the random numbers that choose which entries may be evicted.
    private var lot: UInt64 = 1
    /// Position that each loop's clients have acknowledged; it applies to entries without their own.
    private(set) var loopMarks: [EventLogPosition?]
    /// Indices of the entries that may belong to the same client as another one.
    private var doubted: Set<UInt32> = []
    private(set) var dropped: DroppedClients
    /// Indices of the entries that the next `takeChanges` returns.
    var dirty: [UInt32] = []
    /// Indices of the entries that the file on the disk surely contains as in use.
    var written: Set<UInt32> = []
    /// Indices of the entries that `takeChanges` last returned: those in use, and those that are free now.
    var underWay: (kept: [UInt32], left: [UInt32]) = ([], [])
    var marksAreDirty = false
    /// Indices of the entries that have changed since other nodes were told; nil if there are no other nodes.
    var unshared: Set<UInt32>?
    /// Positions of the loops as other nodes were last told.
    var sharedMarks: [EventLogPosition?] = []

    public init(maximum: Int, loops: Int) {
        precondition(maximum > 0 && loops > 0, "a book of nothing")
        self.maximum = maximum
        dropped = DroppedClients(maximum: max(64, maximum / 4))
        loopMarks = Array(repeating: nil, count: loops)
    }

    public var count: Int { entries.count - free.count }

    // MARK: Connected clients

    /// Adds an entry for a connected client and returns its index. Returns nil if there is no room: the client will
    /// then be `unknown` when it returns.
    public mutating func arrive(
        _ key: ResumeKey, of taker: Taker, on loop: Int, lastRef: UInt32, at mark: EventLogPosition, owesLoss: Bool,
        now: UInt64
    ) -> Place? {
        guard let place = takeFree(for: taker) else {
            evicted += 1
            dropped.noteWithoutEntry(key)
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

    /// Records the position that an entry's client has acknowledged. If `mark` is nil, its loop's position applies.
    /// `heard` is a monotonic time after which the client has sent something.
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

    /// Ends the doubt about an entry if its client sent something (at the time `heard`) after the doubt began: it is
    /// then a separate client.
    private mutating func hear(_ place: Place, _ heard: UInt64) {
        if heard > entries[Int(place)].succeeded { entries[Int(place)].succeeded = 0 }
        if heard > entries[Int(place)].doubtedAt { entries[Int(place)].isDoubtful = false }
    }

    public mutating func set(_ mark: EventLogPosition, of loop: Int) {
        guard loopMarks[loop] != mark else { return }
        loopMarks[loop] = mark
        marksAreDirty = true
    }

    /// Removes the entry of a client that left its channel on purpose.
    public mutating func leave(_ place: Place) {
        precondition(entries[Int(place)].standing == .here, "who is not here cannot leave")
        release(place)
    }

    /// Marks an entry's client as disconnected, because its socket broke. `heard` is a monotonic time after which the
    /// client has sent something. If that is after another client was taken for this one, they are different clients.
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

    // MARK: Joining clients

    /// Decides if a joining client is new or resumes, and from which position. The decision uses the number of the
    /// client's first message on its socket.
    ///
    /// - Parameter key: nil for a client that cannot be distinguished from others, which has no entry.
    public mutating func arrival(
        _ key: ResumeKey?, of taker: Taker, firstRef: UInt32, on loop: Int, now: UInt64
    ) -> Arrival {
        if let claim = key.flatMap({ claim($0, of: taker, firstRef: firstRef, on: loop, now: now) }) {
            return .goesOn(claim)
        }
        if firstRef <= 1 { return .begins }
        if let key { dropped.hasReturned(key, firstRef: firstRef) }
        return .unknown
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
            // Offsets of different epochs cannot be compared, so the client may miss something.
            let isOfAnotherLog = claimed.map { $0.mark.epoch != mark.epoch } ?? false
            claimed = (least, entry.owesLoss || claimed?.owesLoss == true || isOfAnotherLog)
            if closest.map({ entries[Int($0)].lastRef < entry.lastRef }) ?? true { closest = place }
        }
        guard var claimed, let closest else { return nil }
        if dropped.hasUnnumbered(key) { claimed.owesLoss = true }
        if dropped.mayBeOne(key, firstRef: firstRef, closest: entries[Int(closest)].lastRef) {
            // The entry may be another client's, so it stays.
            return Claim(
                mark: claimed.mark, owesLoss: true,
                place: arrive(
                    key, of: taker, on: loop, lastRef: firstRef, at: claimed.mark, owesLoss: true, now: now))
        }
        // A client that returns later for one of the other entries may be the one that had acknowledged only this
        // position.
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

    /// True if the client's message numbers continue those of an entry without doubt: the client is then that one.
    /// Doubtful entries are ignored, because their client probably has another entry, and their positions may be much
    /// older.
    private func hasPredecessor(of firstRef: UInt32, _ key: ResumeKey) -> Bool {
        var isFound = false
        forEach(of: key) { _, entry in
            guard entry.lastRef < firstRef, !entry.isDoubtful, entry.succeeded == 0 else { return }
            if firstRef - entry.lastRef <= DroppedClients.lostOnTheWay { isFound = true }
        }
        return isFound
    }

    /// Gives the entry at `place` back to a client that joins again on the same socket. If another client has taken
    /// that entry, adds a new one.
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

    /// Gives an entry to a joining client. At every moment the registry has the position of the former client or of the
    /// new one, because the process may end at any moment.
    private mutating func takeOver(
        _ place: Place, from stand: Stand, _ key: ResumeKey, of taker: Taker, _ firstRef: UInt32,
        _ loop: Int, _ now: UInt64
    ) -> Place? {
        guard entries[Int(place)].standing == .gone else {
            succeed(place, now)
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

    /// Returns the indices of a loop's doubtful entries. The loop pings their clients until they answer or disconnect.
    /// Messages that were on their way when the doubt began do not end it.
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

    /// Removes the entries whose grace period is over. `now` is in seconds on the clock of the registry's owner (a
    /// store).
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
        if isGone(place, until: expires) { drop(place) }
    }

    /// Removes the entry of a client that may yet return.
    private mutating func drop(_ place: UInt32) {
        let entry = entries[Int(place)]
        release(place)
        dropped.note(entry.key, lastRef: entry.lastRef)
        // The file says of the others of the key that one was dropped.
        var others: [UInt32] = []
        forEach(of: entry.key) { other, _ in others.append(other) }
        for other in others { touch(other) }
    }

    /// True if the entry at the index is still the disconnected one that expires at `expires`. Another entry may have
    /// reused the index.
    private func isGone(_ place: UInt32, until expires: Int64) -> Bool {
        entries[Int(place)].standing == .gone && entries[Int(place)].expires == expires
    }

    /// Removes elements of `leaving` whose clients returned or whose entries were dropped. It does so before the list
    /// becomes larger than the registry.
    private mutating func dropPast() {
        guard leaving.count - leavingHead > 2 * maximum + 1024 else { return }
        leaving = leaving[leavingHead...].filter { isGone($0.place, until: $0.expires) }
        leavingHead = 0
    }

    /// Returns the number of entries dropped before their grace period ended, and of clients for which there was no
    /// room, since the last call.
    public mutating func takeEvicted() -> Int {
        defer { evicted = 0 }
        return evicted
    }

    /// Maximum number of entries of one address: three quarters of the registry.
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
        drop(place)
        evicted += 1
        return free.popLast()
    }

    /// Returns the entry to drop for a new client: that of a disconnected client whose address, and then whose socket,
    /// has most entries. Returns nil if the new client itself has more. Looks at a sample only, so that the work does
    /// not grow with the registry.
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
            // Among equals, the entry that expires first is dropped.
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

    mutating func release(_ place: UInt32) {
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

    /// Makes the next `takeChanges` return all entries, because it is unknown what the file contains.
    public mutating func touchAll() {
        marksAreDirty = true
        underWay = ([], [])
        for place in entries.indices { touch(UInt32(place)) }
    }

    /// Records that another client was taken for the one of this entry.
    mutating func succeed(_ place: UInt32, _ now: UInt64) {
        entries[Int(place)].succeeded = now
        doubted.insert(place)
        touch(place)
    }

    private mutating func touch(_ place: UInt32) {
        unshared?.insert(place)
        guard !entries[Int(place)].isDirty else { return }
        entries[Int(place)].isDirty = true
        dirty.append(place)
    }

    // MARK: After a restart

    /// Restores the entries that an earlier process wrote. All of its clients count as disconnected.
    mutating func restore(_ written: [Entry?], _ marks: [EventLogPosition?], now: Int64, until expires: Int64) {
        precondition(entries.isEmpty, "a book that was begun is not restored")
        for var entry in written.prefix(maximum) {
            let place = UInt32(entries.count)
            if let entry, entry.hasDroppedSiblings { dropped.noteUnknown(entry.key) }
            entries.append(Entry())
            let isHere = entry?.standing == .here
            if isHere, let found = entry, !found.hasOwnMark {
                let mark = Int(found.loop) < marks.count ? marks[Int(found.loop)] : nil
                if let mark { entry?.mark = mark } else { entry = nil }
            }
            guard var entry, entry.standing == .here || entry.standing == .gone && entry.expires > now else {
                if let entry, entry.standing == .gone { dropped.note(entry.key, lastRef: entry.lastRef) }
                free.append(place)
                continue
            }
            entry.standing = .gone
            entry.hasOwnMark = true
            // The restart does not shorten a client's grace period, but only once. A client that has returned may have
            // left an old entry. With every restart, that entry would make it resume from its former position. The new
            // expiry is not later than that of clients that disconnect from now on, because the list is sorted.
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
