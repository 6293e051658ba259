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
        /// Which change of the entry it is; the highest bit says that it is no broadcast.
        private let change: UInt32
        /// The message of the same topic before it, counted from one; zero is none.
        fileprivate(set) var previous: UInt32

        init(
            position: UInt64, offset: UInt64, insertedAt: Int64, index: UInt32, isBroadcast: Bool, previous: UInt32
        ) {
            precondition(index < 1 << 31, "a part has fewer changes")
            self.position = position
            self.offset = offset
            self.insertedAt = insertedAt
            change = index | (isBroadcast ? 0 : 1 << 31)
            self.previous = previous
        }

        var index: UInt32 { change & ~(1 << 31) }
        var isBroadcast: Bool { change == index }
    }

    /// The messages of one segment.
    struct Segment {
        let sequence: UInt64
        /// Every message of the segment from this offset on is here …
        var firstOffset: UInt64
        /// … and those before were committed before this, by the hub's clock.
        var beginTime: Int64
        /// Where the reading of it goes on; nil once it was read to its end.
        var next: (position: UInt64, offset: UInt64)?
        var layouts = MessageLayouts()
        fileprivate(set) var places: [Place] = []
        /// The newest place of each topic, counted from one.
        private var newest: [UInt64: UInt32] = [:]
        /// Of all messages in it.
        private(set) var latest = Int64.min

        init(_ header: SegmentHeader) {
            sequence = header.sequence
            firstOffset = header.baseOffset
            beginTime = header.created
        }

        mutating func add(
            _ topic: UInt64, position: UInt64, offset: UInt64, index: UInt32, insertedAt: Int64, isBroadcast: Bool
        ) {
            let previous = newest[topic] ?? 0
            places.append(
                Place(
                    position: position, offset: offset, insertedAt: insertedAt, index: index, isBroadcast: isBroadcast,
                    previous: previous))
            newest[topic] = UInt32(places.count)
            latest = max(latest, insertedAt)
        }

        /// The topic's places, the newest first, until `body` says that it is enough.
        func visit(_ topic: UInt64, _ body: (Place) -> Bool) {
            var next = newest[topic] ?? 0
            while next > 0 {
                let place = places[Int(next) - 1]
                guard body(place) else { return }
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
        }
    }

    /// Oldest first, without a hole.
    private(set) var segments: [Segment] = []
    private(set) var count = 0
    private var hasForgotten = false
    private let maximum: Int

    init(maximum: Int = Limits.archivedMessages) { self.maximum = maximum }

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
        count = 0
        hasForgotten = false
    }

    /// The segment after the newest one.
    mutating func append(_ segment: Segment) {
        segments.append(segment)
        count += segment.places.count
        makeRoom()
    }

    /// The segment before the oldest one.
    mutating func prepend(_ segment: Segment) {
        segments.insert(segment, at: 0)
        count += segment.places.count
        makeRoom()
    }

    /// The newest one, read further.
    mutating func withNewest<T>(_ body: (inout Segment) throws -> T) rethrows -> T? {
        guard var newest = segments.popLast() else { return nil }
        let before = newest.places.count
        defer {
            count += newest.places.count - before
            segments.append(newest)
            makeRoom()
        }
        return try body(&newest)
    }

    /// Retention took everything up to this segment.
    mutating func forget(upTo sequence: UInt64) {
        while let oldest = segments.first, oldest.sequence <= sequence { removeOldest() }
    }

    private mutating func removeOldest() { count -= segments.removeFirst().places.count }

    private mutating func makeRoom() {
        guard count > maximum else { return }
        hasForgotten = true
        while count > maximum, segments.count > 1 { removeOldest() }
        if count > maximum, var only = segments.popLast() {
            only.forgetOlderHalf()
            count = only.places.count
            segments.append(only)
        }
    }
}
