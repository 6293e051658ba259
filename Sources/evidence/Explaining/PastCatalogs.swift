import Change
import EventLog
import History
import System

/// Search in the log for the recorded catalog by which a change was evaluated.
public struct PastCatalogs {
    /// Returns the catalog by which the hub evaluated the change; nil if the log does not have it.
    public static func record(of log: HistoryLog, at offset: UInt64) throws -> CatalogRecord? {
        var catalogs = PastCatalogs(offset)
        var reader = try EventLogReader(directory: log.directory, from: .oldest, matchingAnyOf: [RowKey.catalog])
        while try reader.next(), catalogs.next == nil {
            switch reader.entry.kind {
            case .catalogRecord: for record in try CatalogRecordCodec.decode(reader.payload) { catalogs.take(record) }
            case .catalogMark where reader.entry.offset <= offset:
                catalogs.marks.append((try CatalogMarkCodec.decode(reader.payload).xid, reader.entry.time))
            default: break
            }
        }
        return catalogs.chosen
    }

    /// Offset at which the catalog that the hub uses for its clients may have changed.
    public struct Turn: Sendable {
        public var place: UInt64
        /// Unix time in microseconds at which the new catalog was recorded. The hub began to use it a moment earlier.
        public var written: Int64
    }

    /// Returns all turns in the log (offsets at which the catalog may have changed), in ascending order. A record that
    /// repeats the catalog with more roles is no new turn.
    public static func turns(of log: HistoryLog) throws -> [Turn] {
        var written: [UInt64: Int64] = [:]
        var last: (record: CatalogRecord, written: Int64)?
        var reader = try EventLogReader(directory: log.directory, from: .oldest, matchingAnyOf: [RowKey.catalog])
        while try reader.next() {
            guard reader.entry.kind == .catalogRecord else { continue }
            for record in try CatalogRecordCodec.decode(reader.payload) {
                let isSame = last?.record.agrees(with: record) ?? false
                let time = isSame ? last?.written ?? record.time : record.time
                for place in [record.unknownFrom, record.since] { written[place] = min(written[place] ?? .max, time) }
                last = (record, time)
            }
        }
        return written.map { Turn(place: $0, written: $1) }.sorted { $0.place < $1.place }
    }

    private let offset: UInt64
    /// Newest catalog record that was valid before the change; nil until one is found.
    private var last: CatalogRecord?
    /// First catalog record that becomes valid after the change; nil until one is found.
    private var next: CatalogRecord?
    /// Transactions before the change that may have changed the catalog, with their commit times.
    private var marks: [(xid: UInt32, time: Int64)] = []
    private let now = Clock.unixMicroseconds()

    init(_ offset: UInt64) { self.offset = offset }

    fileprivate mutating func take(mark xid: UInt32, at time: Int64) { marks.append((xid, time)) }

    /// True if no later record can change the choice.
    fileprivate var isFound: Bool { next != nil }

    fileprivate mutating func take(_ record: CatalogRecord) {
        if record.since <= offset {
            last = record
        } else if next == nil {
            next = record
            if record.unknownFrom <= offset { last = nil }
        }
    }

    /// Record by which the hub evaluated the change. A loop that reads a mark waits for a catalog that includes the
    /// marked transaction. It evaluates later changes by that catalog, however late the catalog is recorded.
    fileprivate var chosen: CatalogRecord? {
        assert(self.last.map { $0.since <= offset } ?? true, "the last record counts at the change")
        assert(self.next.map { $0.since > offset } ?? true, "the next record counts after the change")
        guard let next else { return last.flatMap { isStillToCome(after: $0) ? nil : $0 } }
        return marks.contains { next.awaited.contains($0.xid) } ? next : last
    }

    /// True if the log may still get a newer record that is valid at the change. The hub writes a record shortly after
    /// it begins to use the catalog, and writes none if nothing has changed.
    private func isStillToCome(after record: CatalogRecord) -> Bool {
        marks.contains { $0.time > record.time && now - $0.time < Self.patience }
    }

    /// Time in microseconds after a commit within which the hub has certainly written the catalog's record.
    private static let patience: Int64 = 5_000_000
}

/// Recorded catalogs of a log, each with the offsets at which it is valid. Reads the log once.
struct CatalogTimeline {
    private enum Item {
        case record(CatalogRecord)
        case mark(xid: UInt32, time: Int64, place: UInt64)
    }

    /// Records with different catalogs, in the order of the log.
    private(set) var records: [CatalogRecord] = []
    let turns: [PastCatalogs.Turn]
    private var items: [Item] = []
    /// Offsets at which another record may become valid, in ascending order, with the record's index from that offset
    /// on; nil if the log does not have it.
    private var steps: [(place: UInt64, record: Int?)] = []

    init(of log: HistoryLog) throws {
        turns = try PastCatalogs.turns(of: log)
        var reader = try EventLogReader(directory: log.directory, from: .oldest, matchingAnyOf: [RowKey.catalog])
        var places: Set<UInt64> = [0]
        while try reader.next() {
            switch reader.entry.kind {
            case .catalogRecord:
                for record in try CatalogRecordCodec.decode(reader.payload) {
                    places.formUnion([record.since, record.unknownFrom])
                    items.append(.record(record))
                }
            case .catalogMark:
                let mark = try CatalogMarkCodec.decode(reader.payload)
                places.insert(reader.entry.offset)
                items.append(.mark(xid: mark.xid, time: reader.entry.time, place: reader.entry.offset))
            default: break
            }
        }
        for place in places.sorted() { steps.append((place, number(of: chosen(at: place)))) }
    }

    private func chosen(at offset: UInt64) -> CatalogRecord? {
        var catalogs = PastCatalogs(offset)
        for item in items {
            switch item {
            case .record(let record): catalogs.take(record)
            case .mark(let xid, let time, let place): if place <= offset { catalogs.take(mark: xid, at: time) }
            }
            if catalogs.isFound { break }
        }
        return catalogs.chosen
    }

    private mutating func number(of record: CatalogRecord?) -> Int? {
        guard let record else { return nil }
        if let known = records.firstIndex(where: { $0.hasSameContent(as: record) }) { return known }
        records.append(record)
        return records.count - 1
    }

    /// Returns the index of the record by which the hub evaluated the change at the offset; nil if the log does not
    /// have it.
    func record(at offset: UInt64) -> Int? {
        var (low, high) = (0, steps.count)
        while low < high {
            let middle = (low + high) / 2
            if steps[middle].place <= offset { low = middle + 1 } else { high = middle }
        }
        return low > 0 ? steps[low - 1].record : nil
    }

    /// Returns the indexes of the records that are valid in a range of offsets. Each has the range from its first
    /// offset to its last within the given range.
    func stretches(in offsets: Range<UInt64>) -> [(offsets: Range<UInt64>, record: Int?)] {
        var found: [(offsets: Range<UInt64>, record: Int?)] = []
        for (number, step) in steps.enumerated() {
            let end = number + 1 < steps.count ? steps[number + 1].place : .max
            let part = (step.place..<max(step.place, end)).clamped(to: offsets)
            if part.isEmpty { continue }
            if let last = found.last, last.record == step.record, last.offsets.upperBound == part.lowerBound {
                found[found.count - 1].offsets = last.offsets.lowerBound..<part.upperBound
            } else {
                found.append((part, step.record))
            }
        }
        return found
    }

    /// Returns the indexes of the records that became valid after the offset `first`, up to and including `last`.
    func records(after first: UInt64, through last: UInt64) -> [Int?] {
        turns.filter { $0.place > first && $0.place <= last }.map { record(at: $0.place) }
    }

    /// Returns `place`, or an earlier offset if a catalog valid at `place` was recorded after the client's return. No
    /// such catalog is valid yet at the earlier offset.
    func beforeTurns(since joined: RecordedNote, _ place: UInt64) -> UInt64 {
        PastCatalogs.place(before: turns, since: joined, place)
    }

    /// Returns the offset of the last change before the client joined.
    static func place(at joined: RecordedNote, in log: HistoryLog) throws -> UInt64 {
        try PastCatalogs.place(at: joined, in: log)
    }
}

extension PastCatalogs {
    /// Returns `place`, or an earlier offset if a catalog valid at `place` was recorded after the client's return. No
    /// such catalog is valid yet at the earlier offset. The reason: the loop at the log's end may have lagged. It then
    /// began to use a catalog only after the return, but from an offset before the return.
    static func place(before turns: [Turn], since joined: RecordedNote, _ place: UInt64) -> UInt64 {
        let first = turns.first { $0.written > joined.note.time && $0.place <= place }
        let found = first.map { $0.place > 0 ? $0.place - 1 : 0 } ?? place
        assert(found <= place, "a place before a turn does not lie behind it")
        return found
    }

    /// Returns the offset of the last change before a client joined. The log gets the note of a join a moment later,
    /// after changes that were committed in between.
    static func place(at joined: RecordedNote, in log: HistoryLog) throws -> UInt64 {
        var next = joined.place
        var reader = try HistoryReader(log, HistoryQuery(from: .time(joined.note.time), to: .offset(joined.place)))
        if case .change(let change)? = try reader.next() { next = min(next, change.offset) }
        return next > 0 ? next - 1 : 0
    }
}
