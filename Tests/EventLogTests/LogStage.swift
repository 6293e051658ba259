import Bytes
import EventLog
import System
import TestSupport
import Testing

/// Log entry as plain values.
struct Seen: Equatable, Sendable, CustomStringConvertible {
    var kind: UInt8
    var continued: Bool
    var changes: UInt32
    var offset: UInt64
    var lsn: UInt64
    var time: Int64
    var payload: [UInt8]

    var description: String { "\(kind)@\(offset)+\(changes)\(continued ? "…" : "") lsn \(lsn) \(payload.count) bytes" }
}

/// Options for small logs that are the same in every run: no thread, small segments, and a fixed clock.
func testOptions(segmentBytes: UInt64 = 64 << 10, epoch: UInt64 = 7) -> EventLogOptions {
    var options = EventLogOptions(source: 99)
    options.segmentBytes = segmentBytes
    options.preparesSegments = false
    options.now = { 1_000_000 }
    let next = epochs(from: epoch)
    options.newEpoch = next
    return options
}

func epochs(from first: UInt64) -> @Sendable () -> UInt64 {
    let counter = Counter(first)
    return { counter.next() }
}

func payload(_ seed: UInt64, _ count: Int) -> [UInt8] {
    var random = SeededRandom(seed: seed)
    var bytes: [UInt8] = []
    bytes.reserveCapacity(count + 8)
    while bytes.count < count { withUnsafeBytes(of: random.next()) { bytes.append(contentsOf: $0) } }
    bytes.removeSubrange(count...)
    return bytes
}

extension EventLogWriter {
    @discardableResult
    func put(
        _ payload: [UInt8], kind: EntryKind = .transaction, continued: Bool = false, changes: UInt32 = 1, lsn: UInt64,
        time: Int64 = 5, keys: [UInt64] = []
    ) throws(EventLogFailure) -> Seen {
        let offset = try append(
            kind: kind, continued: continued, changeCount: kind == .transaction ? changes : 0, lsn: lsn, time: time,
            payload: payload.span.bytes, keys: keys.span)
        return Seen(
            kind: kind.rawValue, continued: continued, changes: kind == .transaction ? changes : 0, offset: offset,
            lsn: lsn, time: time, payload: payload)
    }
}

extension EventLogReader {
    var seen: Seen {
        Seen(
            kind: entry.kind.rawValue, continued: entry.isContinued, changes: entry.changeCount, offset: entry.offset,
            lsn: entry.lsn, time: entry.time, payload: payload.copied())
    }

    mutating func rest() throws(EventLogError) -> [Seen] {
        var all: [Seen] = []
        while try next() { if !entry.precedesStart { all.append(seen) } }
        return all
    }
}

func readAll(
    _ directory: any StorageDirectory, end: EventLogEnd? = nil, from start: EventLogStart = .oldest
) throws -> [Seen] {
    var reader = try EventLogReader(directory: directory, end: end, from: start)
    return try reader.rest()
}
