import Bytes
import Change
import Diagnostics
import EventLog
import System

/// Index of the messages of each topic in the newest segments of the log. It stores only their places, so that many fit
/// in little memory. Used by one thread.
struct MessageIndex {
    /// Place of a message in a segment.
    struct Place {
        /// Position of the entry in its segment.
        let position: UInt64
        /// Offset of the message itself.
        let offset: UInt64
        /// Microseconds since 1970.
        let insertedAt: Int64
        /// Hash of the row's id.
        let id: UInt64
        /// Index of the change in its entry. The highest bit is set if the message is not a broadcast.
        private let change: UInt32
        /// Number of the previous message of the same topic, counted from one; zero means none.
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

    /// Data that the index remembers of a message.
    struct Noted {
        let topic: UInt64
        let id: UInt64
        let insertedAt: Int64
        let isBroadcast: Bool
    }

    /// Place of a row in the log.
    struct Row {
        let segment: UInt64
        /// Position of the entry in its segment.
        let position: UInt64
        /// Offset of the change, which is number `index` in its entry.
        let offset: UInt64
        let index: UInt32
    }

    /// Last change of a message after its insert.
    struct Revision {
        enum Change {
            case deleted
            /// The row was rewritten. Contains the place of its new version, and its topic.
            case rewritten(Row, topic: UInt64)
            /// The row was updated, but its payload did not change and was not sent again.
            case kept(topic: UInt64)
        }

        let id: UInt64
        /// Offset of the change itself.
        let offset: UInt64
        let change: Change

        /// Combines two revisions of one message, in any order. If both have the same offset, `other` counts as the
        /// newer one.
        func merged(with other: Revision) -> Revision {
            precondition(id == other.id, "one message's fate is not another's")
            let (older, newer) = offset <= other.offset ? (self, other) : (other, self)
            // An unchanged payload is the one that was written before.
            guard case .kept(let topic) = newer.change, case .rewritten(let row, _) = older.change else { return newer }
            return Revision(id: id, offset: newer.offset, change: .rewritten(row, topic: topic))
        }
    }

    /// Messages of one segment.
    struct Segment {
        let sequence: UInt64
        /// Offset from which on the index has every message of the segment.
        var firstOffset: UInt64
        /// Commit time, by the hub's clock, before which all messages before `firstOffset` were committed.
        var beginTime: Int64
        /// Place from which reading continues; nil after the segment was read to its end.
        var next: (position: UInt64, offset: UInt64)? {
            didSet { if let next { reached = next.offset } }
        }
        /// Offset up to which the segment was read.
        private(set) var reached: UInt64 = 0
        var layouts = MessageLayouts()
        fileprivate(set) var places: [Place] = []
        /// Number of the newest place of each topic, counted from one.
        private var newest: [UInt64: UInt32] = [:]
        /// Latest insert time of all messages in the segment.
        private(set) var latest = Int64.min
        /// Revisions of messages of this and earlier segments, until the index takes them.
        var revisions: [Revision] = []
        /// True if a TRUNCATE removed earlier messages. Only the table knows which ones.
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

        /// Forgets everything before the offset. All of it was committed by `committed`.
        mutating func forget(before offset: UInt64, committed: Int64) {
            firstOffset = max(firstOffset, offset)
            beginTime = max(beginTime, committed)
            places = []
            newest = [:]
            revisions = []
            assert(firstOffset >= offset && beginTime >= committed, "what was forgotten is not promised")
        }

        /// Passes the topic's places to `body`, newest first, until `body` returns false.
        func visit(_ topic: UInt64, _ body: (Place) -> Bool) {
            var next = newest[topic] ?? 0
            while next > 0 {
                let place = places[Int(next) - 1]
                guard body(place) else { return }
                assert(place.previous < next, "the way leads back")
                next = place.previous
            }
        }

        /// Passes the places of all topics from the offset on to `body`.
        func visitTopics(since offset: UInt64, _ body: (Place, _ topic: UInt64) -> Void) {
            guard let last = places.last, last.offset >= offset else { return }
            for topic in newest.keys {
                visit(topic) { place in
                    guard place.offset >= offset else { return false }
                    body(place, topic)
                    return true
                }
            }
        }

        /// Makes room if a single segment has more messages than may be remembered.
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

    /// Segments without a gap, oldest first.
    private(set) var segments: [Segment] = []
    private var placeCount = 0
    /// Revisions by the hash of the message's id.
    private var revisions: [UInt64: Revision] = [:]
    private var hasForgotten = false
    private let maximum: Int

    init(maximum: Int = Limits.archivedMessages) { self.maximum = maximum }

    private var count: Int { placeCount + revisions.count }

    /// Returns the last revision of a message; nil if the message is as it was inserted.
    func revision(of place: Place) -> Revision? {
        if revisions.isEmpty { return nil }
        guard let revision = revisions[place.id], revision.offset > place.offset else { return nil }
        assert(revision.id == place.id, "a message is what became of itself")
        return revision
    }

    /// Passes each message from the offset on that was changed or deleted to `body`, with its segment and topic.
    func visitRevised(since offset: UInt64, _ body: (Place, _ segment: UInt64, _ topic: UInt64) -> Void) {
        if revisions.isEmpty { return }
        for segment in segments {
            segment.visitTopics(since: offset) { place, topic in
                if revision(of: place) != nil { body(place, segment.sequence, topic) }
            }
        }
    }

    /// Random seed, so that nobody can choose ids with equal hashes.
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

    /// True if no older messages fit. Messages that were forgotten for lack of room are not read again.
    var isFull: Bool { hasForgotten || count >= maximum }

    /// Number of the newest segment, and the position from which reading it continues.
    var newest: (sequence: UInt64, place: UInt64?)? {
        segments.last.map { ($0.sequence, $0.next?.position) }
    }

    mutating func removeAll() {
        segments = []
        placeCount = 0
        revisions = [:]
        hasForgotten = false
    }

    /// Adds the segment after the newest one.
    mutating func append(_ segment: Segment) {
        assert(segments.last.map { $0.sequence + 1 == segment.sequence } ?? true, "segments follow without a hole")
        segments.append(segment)
        placeCount += segment.places.count
        withNewest { _ in }
    }

    /// Adds the segment before the oldest one.
    mutating func prepend(_ segment: Segment) {
        assert(segments.first.map { $0.sequence == segment.sequence + 1 } ?? true, "segments follow without a hole")
        var segment = segment
        takeRevisions(&segment)
        if segment.takeTruncation() { hasForgotten = true }
        segments.insert(segment, at: 0)
        placeCount += segment.places.count
        makeRoom()
    }

    /// Changes the newest segment after more of it was read.
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

    /// Forgets all segments up to this one, which retention has deleted.
    mutating func forget(upTo sequence: UInt64) {
        while let oldest = segments.first, oldest.sequence <= sequence { removeOldest() }
    }

    private mutating func removeOldest() {
        placeCount -= segments.removeFirst().places.count
        assert(placeCount >= 0, "what is forgotten was counted")
        forgetRevisions()
    }

    /// Forgets the revisions of messages that the index no longer contains.
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
