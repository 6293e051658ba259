import Change
import EventLog
import History
import System

/// The catalogs that a log has, of which one is that of a change.
public struct PastCatalogs {
    /// By which the change was judged; nil where the log does not have what the catalog said then.
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
        var reader = try EventLogReader(directory: log.directory, from: .oldest, matchingAnyOf: [RowKey.catalog])
        while try reader.next() {
            guard reader.entry.kind == .catalogRecord else { continue }
            for record in try CatalogRecordCodec.decode(reader.payload) {
                for place in [record.unknownFrom, record.since] {
                    written[place] = min(written[place] ?? .max, record.time)
                }
            }
        }
        return written.map { Turn(place: $0, written: $1) }.sorted { $0.place < $1.place }
    }

    private let offset: UInt64
    /// The newest that counted before the change, and the one after it.
    private var last: CatalogRecord?
    private var next: CatalogRecord?
    /// Transactions before the change that may have changed the catalog, and when they were committed.
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

    /// Whoever reads a mark waits for a catalog that knows of it, and judges what follows by that, however late it comes.
    private var chosen: CatalogRecord? {
        guard let next else { return last.flatMap { isStillToCome(after: $0) ? nil : $0 } }
        return marks.contains { next.awaited.contains($0.xid) } ? next : last
    }

    /// What the catalog says is written down a moment after the hub judges by it; where nothing has changed, never.
    private func isStillToCome(after record: CatalogRecord) -> Bool {
        marks.contains { $0.time > record.time && now - $0.time < Self.patience }
    }

    /// Microseconds in which a record has long been written.
    private static let patience: Int64 = 5_000_000
}
