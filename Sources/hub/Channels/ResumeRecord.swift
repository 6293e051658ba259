import Bytes
import EventLog

/// Stored form of a resume registry: records of equal size. An incomplete record is ignored, so that the process may
/// end at any moment.
extension ResumeRegistry {
    public static let recordBytes = 64
    /// Number of records before the entries: one with the secret for the keys, then one for each loop's acknowledged
    /// position.
    static let headRecords = 256

    /// Secret with which keys are hashed. A key has no meaning in a registry with another secret.
    public struct Secret: Hashable, Sendable {
        public let first: UInt64
        public let second: UInt64

        public init(first: UInt64, second: UInt64) {
            self.first = first
            self.second = second
        }
    }

    /// Returns the changes of the registry since the last call, as bytes and their byte position in the file. The
    /// caller must write them in this order, because the process may end between any two. An entry gets its own
    /// position before its loop's position changes. An entry that another one replaces is written as free, and its
    /// index reused, only after the other one is written.
    public mutating func takeChanges() -> [(bytes: [UInt8], at: UInt64)] {
        var changes: [(bytes: [UInt8], at: UInt64)] = []
        written.formUnion(underWay.kept)
        written.subtract(underWay.left)
        let kept = dirty.filter { !isFree($0) }
        let orders = [
            kept.filter { !written.contains($0) }, kept.filter(written.contains), dirty.filter(isFree),
        ]
        for places in orders.map({ $0.sorted() }) {
            var last: UInt32?
            for place in places {
                entries[Int(place)].isDirty = false
                var entry = entries[Int(place)]
                entry.hasDroppedSiblings = !isFree(place) && dropped.mayHave(entry.key)
                let bytes = Record(entry).bytes
                if let last, place == last + 1 {
                    changes[changes.count - 1].bytes += bytes
                } else {
                    changes.append((bytes, UInt64(Self.headRecords + Int(place)) * UInt64(Self.recordBytes)))
                }
                last = place
            }
        }
        underWay = (kept, orders[2])
        dirty.removeAll(keepingCapacity: dirty.count < 4096)
        guard marksAreDirty else { return changes }
        marksAreDirty = false
        let marks = loopMarks.prefix(Self.headRecords - 1).map { mark in
            Record(words: [mark == nil ? 0 : 1, mark?.epoch ?? 0, mark?.offset ?? 0])
        }
        changes.append((marks.flatMap(\.bytes), UInt64(Self.recordBytes)))
        return changes
    }

    private func isFree(_ place: UInt32) -> Bool { entries[Int(place)].standing == .free }

    /// First record of the file of a resume registry.
    public struct Head: Equatable, Sendable {
        public var secret: Secret
        /// Number that identifies the boot of the computer on which the file was written, as in `TimeSource.boot`.
        public var boot: UInt64
        /// Unix time in seconds at that boot, by the clock that the file's expiry times use.
        public var bootSeconds: Int64

        public init(secret: Secret, boot: UInt64, bootSeconds: Int64) {
            self.secret = secret
            self.boot = boot
            self.bootSeconds = bootSeconds
        }

        /// Reads the first record of a file. Returns nil if the file is not a resume registry.
        public init?(of file: RawSpan) {
            guard let record = Record(file, 0), record.words[0] == magic else { return nil }
            secret = Secret(first: record.words[1], second: record.words[2])
            boot = record.words[3]
            bootSeconds = Int64(bitPattern: record.words[4])
        }

        public var bytes: [UInt8] {
            Record(words: [magic, secret.first, secret.second, boot, UInt64(bitPattern: bootSeconds)]).bytes
        }
    }

    /// Restores the registry from a file. An incomplete record counts as absent. `now` and `expires` are in seconds on
    /// the file's clock.
    public mutating func restore(_ file: RawSpan, now: Int64, until expires: Int64) {
        let marks: [EventLogPosition?] = (1..<Self.headRecords).map { number in
            guard let record = Record(file, number), record.words[0] == 1 else { return nil }
            return EventLogPosition(epoch: record.words[1], offset: record.words[2])
        }
        let count = max(0, file.byteCount / Self.recordBytes - Self.headRecords)
        let written = (0..<count).map { Record(file, Self.headRecords + $0)?.entry }
        restore(written, marks, now: now, until: expires)
    }

    /// Number at the beginning of each file; it includes the version of the format.
    private static let magic: UInt64 = 0x0100_4441_5645_4c54

    private struct Record {
        /// Words of the record, seven in all. In the file their checksum follows.
        var words: [UInt64]

        init(words: [UInt64]) { self.words = words + Array(repeating: 0, count: 7 - words.count) }

        init(_ entry: Entry) {
            let flags: UInt64 =
                (entry.hasOwnMark ? 1 : 0) | (entry.owesLoss ? 2 : 0) | (entry.outlivedRestart ? 4 : 0)
                | (entry.succeeded > 0 || entry.isDoubtful ? 8 : 0) | (entry.hasDroppedSiblings ? 16 : 0)
            self.init(words: [
                UInt64(entry.standing.rawValue) | flags << 8 | UInt64(entry.loop) << 16 | UInt64(entry.lastRef) << 32,
                entry.key.high, entry.key.low, entry.mark.epoch, entry.mark.offset,
                UInt64(bitPattern: entry.expires), UInt64(entry.taker.address) << 32 | UInt64(entry.taker.socket),
            ])
        }

        init?(_ file: RawSpan, _ number: Int) {
            let start = number * ResumeRegistry.recordBytes
            guard start + ResumeRegistry.recordBytes <= file.byteCount else { return nil }
            let words = (0..<8).map { word in
                // SAFETY: the record lies in the span; any bit pattern is a valid integer.
                unsafe file.unsafeLoadUnaligned(fromByteOffset: start + word * 8, as: UInt64.self).littleEndian
            }
            self.words = Array(words.prefix(7))
            guard words[7] == sum else { return nil }
        }

        private var sum: UInt64 {
            var hash = KeyHash(seed: 0x6465_7061_7274)
            for word in words { hash.combine(word) }
            return hash.value
        }

        var bytes: [UInt8] {
            (words + [sum]).flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (8 * UInt64($0))) } }
        }

        var entry: Entry? {
            guard let standing = Entry.Standing(rawValue: UInt8(truncatingIfNeeded: words[0])) else { return nil }
            return Entry(
                standing: standing, hasOwnMark: words[0] >> 8 & 1 == 1, owesLoss: words[0] >> 8 & 2 == 2,
                loop: UInt16(truncatingIfNeeded: words[0] >> 16), lastRef: UInt32(truncatingIfNeeded: words[0] >> 32),
                key: ResumeKey(high: words[1], low: words[2]),
                mark: EventLogPosition(epoch: words[3], offset: words[4]),
                expires: Int64(bitPattern: words[5]),
                taker: ResumeRegistry.Taker(
                    address: UInt32(truncatingIfNeeded: words[6] >> 32), socket: UInt32(truncatingIfNeeded: words[6])),
                outlivedRestart: words[0] >> 8 & 4 == 4,
                isDoubtful: words[0] >> 8 & 8 == 8, hasDroppedSiblings: words[0] >> 8 & 16 == 16)
        }
    }
}
