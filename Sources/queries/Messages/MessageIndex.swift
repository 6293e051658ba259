import Bytes
import Change
import Diagnostics
import EventLog
import System

/// Where the messages of each topic are in the log, the newest segments of it: places alone, so that much is remembered in
/// little room. One thread's.
struct MessageIndex {
    /// A message's place.
    struct Place {
        /// Where the entry begins in its segment.
        let position: UInt64
        /// The message's own offset.
        let offset: UInt64
        /// Microseconds since 1970.
        let insertedAt: Int64
        /// Stands for the row's id.
        let id: UInt64
        /// Which change of the entry it is; the highest bit says that it is no broadcast.
        private let change: UInt32
        /// The message of the same topic before it, counted from one; zero is none.
        fileprivate(set) var previous: UInt32

        init(
            _ message: Noted, position: UInt64, offset: UInt64, index: UInt32, previous: UInt32
        ) {
            precondition(index < 1 << 31, "a part has fewer changes")
            self.position = position
            self.offset = offset
            insertedAt = message.insertedAt
            id = message.id
            change = index | (message.isBroadcast ? 0 : 1 << 31)
            self.previous = previous
        }

        var index: UInt32 { change & ~(1 << 31) }
        var isBroadcast: Bool { change == index }
    }

    /// What is remembered of a message.
    struct Noted {
        let topic: UInt64
        let id: UInt64
        let insertedAt: Int64
        let isBroadcast: Bool
    }

    /// Where a row is in the log.
    struct Row {
        let segment: UInt64
        /// Where the entry begins in its segment.
        let position: UInt64
        /// Of the change, which is this one of its entry.
        let offset: UInt64
        let index: UInt32
    }

    /// What became of a message after it was inserted: the last of it.
    struct Revision {
        enum Change {
            case deleted
            /// What the row is now, and in which topic.
            case rewritten(Row, topic: UInt64)
            /// The same where its payload was left alone and not said again.
            case kept(topic: UInt64)
        }

        let id: UInt64
        /// The change's own.
        let offset: UInt64
        let change: Change

        /// Both of one message, in any order; of two in one change the other counts.
        func merged(with other: Revision) -> Revision {
            precondition(id == other.id, "one message's fate is not another's")
            let (older, newer) = offset <= other.offset ? (self, other) : (other, self)
            // What was left alone is what had been written before.
            guard case .kept(let topic) = newer.change, case .rewritten(let row, _) = older.change else { return newer }
            return Revision(id: id, offset: newer.offset, change: .rewritten(row, topic: topic))
        }
    }

    /// The messages of one segment.
    struct Segment {
        let sequence: UInt64
        /// Every message of the segment from this offset on is here …
        var firstOffset: UInt64
        /// … and those before were committed before this, by the hub's clock.
        var beginTime: Int64
        /// Where the reading of it goes on; nil once it was read to its end.
        var next: (position: UInt64, offset: UInt64)? {
            didSet { if let next { reached = next.offset } }
        }
        /// What was read of it ends here.
        private(set) var reached: UInt64 = 0
        var layouts = MessageLayouts()
        fileprivate(set) var places: [Place] = []
        /// The newest place of each topic, counted from one.
        private var newest: [UInt64: UInt32] = [:]
        /// Of all messages in it.
        private(set) var latest = Int64.min
        /// Of messages of this segment and of those before, until the index takes them.
        var revisions: [Revision] = []
        /// What was before was taken away as a whole: how much of it, the table alone knows.
        private var isTruncated = false

        init(_ header: SegmentHeader) {
            sequence = header.sequence
            firstOffset = header.baseOffset
            beginTime = header.created
        }

        mutating func add(_ message: Noted, position: UInt64, offset: UInt64, index: UInt32) {
            let previous = newest[message.topic] ?? 0
            precondition(previous <= places.count, "what was before is remembered")
            assert(places.last.map { $0.offset < offset } ?? true, "messages come in the order of the log")
            places.append(Place(message, position: position, offset: offset, index: index, previous: previous))
            newest[message.topic] = UInt32(places.count)
            latest = max(latest, message.insertedAt)
        }

        mutating func truncate(at offset: UInt64, committed: Int64) {
            isTruncated = true
            forget(before: offset, committed: committed)
        }

        mutating func takeTruncation() -> Bool {
            defer { isTruncated = false }
            return isTruncated
        }

        /// Everything in it before this offset, which was committed by then.
        mutating func forget(before offset: UInt64, committed: Int64) {
            firstOffset = max(firstOffset, offset)
            beginTime = max(beginTime, committed)
            places = []
            newest = [:]
            revisions = []
            assert(firstOffset >= offset && beginTime >= committed, "what was forgotten is not promised")
        }

        /// The topic's places, the newest first, until `body` says that it is enough.
        func visit(_ topic: UInt64, _ body: (Place) -> Bool) {
            var next = newest[topic] ?? 0
            while next > 0 {
                let place = places[Int(next) - 1]
                guard body(place) else { return }
                assert(place.previous < next, "the way leads back")
                next = place.previous
            }
        }

        /// Makes room where a single segment has more than may be remembered.
        mutating func forgetOlderHalf() {
            let count = UInt32(places.count / 2)
            guard count > 0 else { return }
            firstOffset = places[Int(count)].offset
            beginTime = max(beginTime, places.prefix(Int(count)).reduce(.min) { max($0, $1.insertedAt) })
            places.removeFirst(Int(count))
            for index in places.indices {
                let previous = places[index].previous
                places[index].previous = previous > count ? previous - count : 0
            }
            newest = newest.compactMapValues { $0 > count ? $0 - count : nil }
            assert(newest.values.allSatisfy { $0 <= places.count }, "each topic's newest is remembered")
        }
    }

    /// Oldest first, without a hole.
    private(set) var segments: [Segment] = []
    private var placeCount = 0
    /// By what stands for the message's id.
    private var revisions: [UInt64: Revision] = [:]
    private var hasForgotten = false
    private let maximum: Int

    init(maximum: Int = Limits.archivedMessages) { self.maximum = maximum }

    private var count: Int { placeCount + revisions.count }

    /// Nil where the message is as it was inserted.
    func revision(of place: Place) -> Revision? {
        if revisions.isEmpty { return nil }
        guard let revision = revisions[place.id], revision.offset > place.offset else { return nil }
        assert(revision.id == place.id, "a message is what became of itself")
        return revision
    }

    /// Nobody can choose ids that stand for others'.
    private static let idSeed = UInt64.random(in: 1 ... .max)

    static func id(_ id: RawSpan) -> UInt64 {
        var hash = KeyHash(seed: idSeed)
        hash.combine(id)
        return hash.value
    }

    static func topic(_ topic: RawSpan, isPrivate: Bool) -> UInt64 {
        var hash = KeyHash(seed: isPrivate ? 0x6d73_6773 : 0x6d73_6770)
        hash.combine(topic)
        return hash.value
    }

    /// There is no room for older ones; where some had to go, they are not read again.
    var isFull: Bool { hasForgotten || count >= maximum }

    /// The newest segment's number, and where the reading of it goes on.
    var newest: (sequence: UInt64, place: UInt64?)? {
        segments.last.map { ($0.sequence, $0.next?.position) }
    }

    mutating func removeAll() {
        segments = []
        placeCount = 0
        revisions = [:]
        hasForgotten = false
    }

    /// The segment after the newest one.
    mutating func append(_ segment: Segment) {
        assert(segments.last.map { $0.sequence + 1 == segment.sequence } ?? true, "segments follow without a hole")
        segments.append(segment)
        placeCount += segment.places.count
        withNewest { _ in }
    }

    /// The segment before the oldest one.
    mutating func prepend(_ segment: Segment) {
        assert(segments.first.map { $0.sequence == segment.sequence + 1 } ?? true, "segments follow without a hole")
        var segment = segment
        takeRevisions(&segment)
        if segment.takeTruncation() { hasForgotten = true }
        segments.insert(segment, at: 0)
        placeCount += segment.places.count
        makeRoom()
    }

    /// The newest one, read further.
    @discardableResult
    mutating func withNewest<T>(_ body: (inout Segment) throws -> T) rethrows -> T? {
        guard var newest = segments.popLast() else { return nil }
        let before = newest.places.count
        defer {
            if newest.takeTruncation() {
                removeAll()
                hasForgotten = true
                placeCount = newest.places.count
            } else {
                placeCount += newest.places.count - before
            }
            takeRevisions(&newest)
            segments.append(newest)
            makeRoom()
        }
        return try body(&newest)
    }

    private mutating func takeRevisions(_ segment: inout Segment) {
        for revision in segment.revisions {
            revisions[revision.id] = revisions[revision.id].map { $0.merged(with: revision) } ?? revision
        }
        segment.revisions = []
    }

    /// Retention took everything up to this segment.
    mutating func forget(upTo sequence: UInt64) {
        while let oldest = segments.first, oldest.sequence <= sequence { removeOldest() }
    }

    private mutating func removeOldest() {
        placeCount -= segments.removeFirst().places.count
        assert(placeCount >= 0, "what is forgotten was counted")
        forgetRevisions()
    }

    /// Those of messages that are not remembered.
    private mutating func forgetRevisions() {
        guard !revisions.isEmpty else { return }
        let first = segments.first?.firstOffset ?? .max
        revisions = revisions.filter { $0.value.offset >= first }
    }

    private mutating func makeRoom() {
        guard count > maximum else { return }
        hasForgotten = true
        while count > maximum, segments.count > 1 { removeOldest() }
        guard count > maximum, var only = segments.popLast() else { return }
        if revisions.count > only.places.count {
            only.forget(before: only.reached, committed: Clock.unixMicroseconds())
        } else {
            while only.places.count > max(1, maximum) { only.forgetOlderHalf() }
        }
        placeCount = only.places.count
        assert(placeCount <= max(1, maximum), "no more is remembered than may be")
        segments.append(only)
        forgetRevisions()
    }
}
