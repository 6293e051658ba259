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

    private mutating func take(_ record: CatalogRecord) {
        if record.since <= offset {
            last = record
        } else if next == nil {
            next = record
            if record.unknownFrom <= offset { last = nil }
        }
    }

    /// Record by which the change was judged. A loop that reads a mark waits for a catalog that includes the marked
    /// transaction, and judges later changes by that catalog, however late it comes.
    private var chosen: CatalogRecord? {
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
