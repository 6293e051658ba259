import Change
import EventLog
import History
import System

/// Search for the recorded catalog that was valid at a change.
public struct PastCatalogs {
    /// Returns the catalog by which the change was judged; nil if the log does not have it.
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

    /// A place at which the catalog that clients are judged by may have changed.
    public struct Turn: Sendable {
        public var place: UInt64
        /// Time at which the new catalog was written down: clients were judged by it a moment earlier.
        public var written: Int64
    }

    /// Returns all turns that the log has, in the order of their places. A catalog that is written down again, with more roles,
    /// is no other turn.
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
    /// Newest record that was valid before the change. `next` is the first record after the change.
    private var last: CatalogRecord?
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

    /// Record by which the change was judged. A loop that reads a mark waits for a catalog that includes the marked
    /// transaction, and judges later changes by that catalog, however late it comes.
    fileprivate var chosen: CatalogRecord? {
        assert(self.last.map { $0.since <= offset } ?? true, "the last record counts at the change")
        assert(self.next.map { $0.since > offset } ?? true, "the next record counts after the change")
        guard let next else { return last.flatMap { isStillToCome(after: $0) ? nil : $0 } }
        return marks.contains { next.awaited.contains($0.xid) } ? next : last
    }

    /// True if a newer record may not be written yet. A record is written shortly after the hub begins to judge by it,
    /// and not at all if nothing has changed.
    private func isStillToCome(after record: CatalogRecord) -> Bool {
        marks.contains { $0.time > record.time && now - $0.time < Self.patience }
    }

    /// Time in microseconds after which a record has certainly been written.
    private static let patience: Int64 = 5_000_000
}

/// Recorded catalogs of a log, with the places at which each counts. Reads the log once.
struct CatalogTimeline {
    private enum Item {
        case record(CatalogRecord)
        case mark(xid: UInt32, time: Int64, place: UInt64)
    }

    /// Records that differ, in the order of the log.
    private(set) var records: [CatalogRecord] = []
    let turns: [PastCatalogs.Turn]
    private var items: [Item] = []
    /// Places at which another record may begin to count, with the index of the record from there on.
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

    /// Returns the index of the record by which a change was judged; nil if the log does not have it.
    func record(at offset: UInt64) -> Int? {
        var (low, high) = (0, steps.count)
        while low < high {
            let middle = (low + high) / 2
            if steps[middle].place <= offset { low = middle + 1 } else { high = middle }
        }
        return low > 0 ? steps[low - 1].record : nil
    }

    /// Returns the indexes of the records that count in a range of offsets, each with the range from its first to its last
    /// place there.
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

    /// Returns the indexes of the records that came into force after one place and up to another.
    func records(after first: UInt64, through last: UInt64) -> [Int?] {
        turns.filter { $0.place > first && $0.place <= last }.map { record(at: $0.place) }
    }

    /// Returns a place at which no catalog counts yet that was written down after a client had come back.
    func beforeTurns(since joined: RecordedNote, _ place: UInt64) -> UInt64 {
        PastCatalogs.place(before: turns, since: joined, place)
    }

    /// Returns the offset of the last change before a client joined.
    static func place(at joined: RecordedNote, in log: HistoryLog) throws -> UInt64 {
        try PastCatalogs.place(at: joined, in: log)
    }
}

extension PastCatalogs {
    /// Returns a place at which no catalog counts yet that was written down after a client had come back. The loop at the log's
    /// end may have lagged behind the log: it began to judge by such a catalog at a place from before the return, and later
    /// than the return.
    static func place(before turns: [Turn], since joined: RecordedNote, _ place: UInt64) -> UInt64 {
        let first = turns.first { $0.written > joined.note.time && $0.place <= place }
        let found = first.map { $0.place > 0 ? $0.place - 1 : 0 } ?? place
        assert(found <= place, "a place before a turn does not lie behind it")
        return found
    }

    /// Returns the offset of the last change before a client joined. The note of a join reaches the log a moment later,
    /// after changes committed meanwhile.
    static func place(at joined: RecordedNote, in log: HistoryLog) throws -> UInt64 {
        var next = joined.place
        var reader = try HistoryReader(log, HistoryQuery(from: .time(joined.note.time), to: .offset(joined.place)))
        if case .change(let change)? = try reader.next() { next = min(next, change.offset) }
        return next > 0 ? next - 1 : 0
    }
}
