import Bytes
import Change
import Diagnostics
import EventLog
import System

/// Index of the messages of each topic in the newest segments of the log. It stores places, not contents, so that it
/// needs little memory. One thread uses it.
struct MessageIndex {
    /// Place of a message in a segment of the log.
    struct Place {
        /// Byte position of the log entry in its segment.
        let position: UInt64
        /// Log offset of the change that inserted the message.
        let offset: UInt64
        /// Insert time in microseconds since 1970.
        let insertedAt: Int64
        /// Hash of the id of the message's row.
        let id: UInt64
        /// Index of the change in its entry. The highest bit is set if the message is not a broadcast.
        private let change: UInt32
        /// Number of the previous message of the same topic in the segment's `places`, from 1; 0 if there is none.
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

    /// Data of a message that the index stores.
    struct Noted {
        let topic: UInt64
        let id: UInt64
        let insertedAt: Int64
        let isBroadcast: Bool
    }

    /// Place of a version of a row in the log.
    struct Row {
        let segment: UInt64
        /// Byte position of the log entry in its segment.
        let position: UInt64
        /// Log offset of the change, which has index `index` in its entry.
        let offset: UInt64
        let index: UInt32
    }

    /// Last change of a message after it was inserted.
    struct Revision {
        enum Change {
            case deleted
            /// The row has a new version. The value has its place and topic.
            case rewritten(Row, topic: UInt64)
            /// The row was updated without changing the payload, so PostgreSQL did not send the payload again.
            case kept(topic: UInt64)
        }

        let id: UInt64
        /// Log offset of the change that revised the message.
        let offset: UInt64
        let change: Change

        /// Combines two revisions of the same message. The one with the higher offset counts as newer; if both are
        /// equal, `other` does.
        func merged(with other: Revision) -> Revision {
            precondition(id == other.id, "one message's fate is not another's")
            let (older, newer) = offset <= other.offset ? (self, other) : (other, self)
            // The payload is unchanged since the older revision, so the newer one keeps the place of that.
            guard case .kept(let topic) = newer.change, case .rewritten(let row, _) = older.change else { return newer }
            return Revision(id: id, offset: newer.offset, change: .rewritten(row, topic: topic))
        }
    }

    /// Messages of one segment of the log.
    struct Segment {
        let sequence: UInt64
        /// Offset from which the index has every message of the segment.
        var firstOffset: UInt64
        /// Commit time (by the hub's clock, in microseconds since 1970) that no message before `firstOffset` exceeds.
        var beginTime: Int64
        /// Byte position and log offset at which reading the segment continues; nil after the whole segment was read.
        var next: (position: UInt64, offset: UInt64)? {
            didSet { if let next { reached = next.offset } }
        }
        /// Offset up to which the segment was read.
        private(set) var reached: UInt64 = 0
        var layouts = MessageLayouts()
        fileprivate(set) var places: [Place] = []
        /// Number of the newest place of each topic in `places`, from 1.
        private var newest: [UInt64: UInt32] = [:]
        /// Latest insert time of the messages in the segment.
        private(set) var latest = Int64.min
        /// Revisions of messages of this and earlier segments, until the index collects them.
        var revisions: [Revision] = []
        /// True if a TRUNCATE in the segment removed earlier messages. Only the table shows which ones are left.
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

        /// Removes everything before the offset. All of it was committed no later than `committed`.
        mutating func forget(before offset: UInt64, committed: Int64) {
            firstOffset = max(firstOffset, offset)
            beginTime = max(beginTime, committed)
            places = []
            newest = [:]
            revisions = []
            assert(firstOffset >= offset && beginTime >= committed, "what was forgotten is not promised")
        }

        /// Passes the places of the topic to `body`, newest first, until `body` returns false.
        func visit(_ topic: UInt64, _ body: (Place) -> Bool) {
            var next = newest[topic] ?? 0
            while next > 0 {
                let place = places[Int(next) - 1]
                guard body(place) else { return }
                assert(place.previous < next, "the way leads back")
                next = place.previous
            }
        }

        /// Passes the places of all topics, from the offset on, to `body`.
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

        /// Removes the older half of the places, if a single segment has more messages than the index may store.
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

    /// Consecutive segments, oldest first.
    private(set) var segments: [Segment] = []
    private var placeCount = 0
    /// Last revision of each message that has one, by the hash of the message's id.
    private var revisions: [UInt64: Revision] = [:]
    /// True if the index removed messages because it was full or the table was truncated.
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

    /// Passes each message that was changed or deleted, from the offset on, to `body`, with its segment and topic.
    func visitRevised(since offset: UInt64, _ body: (Place, _ segment: UInt64, _ topic: UInt64) -> Void) {
        if revisions.isEmpty { return }
        for segment in segments {
            segment.visitTopics(since: offset) { place, topic in
                if revision(of: place) != nil { body(place, segment.sequence, topic) }
            }
        }
    }

    /// Random seed of the hash, so that no client can choose ids with equal hashes.
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

    /// True if the index has no room for older messages. Messages that were removed to make room are not read again.
    var isFull: Bool { hasForgotten || count >= maximum }

    /// Sequence number of the newest segment, and the position at which reading it continues.
    var newest: (sequence: UInt64, place: UInt64?)? {
        segments.last.map { ($0.sequence, $0.next?.position) }
    }

    mutating func removeAll() {
        segments = []
        placeCount = 0
        revisions = [:]
        hasForgotten = false
    }

    /// Adds the segment that follows the newest one.
    mutating func append(_ segment: Segment) {
        assert(segments.last.map { $0.sequence + 1 == segment.sequence } ?? true, "segments follow without a hole")
        segments.append(segment)
        placeCount += segment.places.count
        withNewest { _ in }
    }

    /// Adds the segment that precedes the oldest one.
    mutating func prepend(_ segment: Segment) {
        assert(segments.first.map { $0.sequence == segment.sequence + 1 } ?? true, "segments follow without a hole")
        var segment = segment
        takeRevisions(&segment)
        if segment.takeTruncation() { hasForgotten = true }
        segments.insert(segment, at: 0)
        placeCount += segment.places.count
        makeRoom()
    }

    /// Calls `body` to read more of the newest segment, and updates the index afterwards.
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

    /// Removes all segments up to this one, because retention has deleted it.
    mutating func forget(upTo sequence: UInt64) {
        while let oldest = segments.first, oldest.sequence <= sequence { removeOldest() }
    }

    private mutating func removeOldest() {
        placeCount -= segments.removeFirst().places.count
        assert(placeCount >= 0, "what is forgotten was counted")
        forgetRevisions()
    }

    /// Removes the revisions of messages that the index no longer has.
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
