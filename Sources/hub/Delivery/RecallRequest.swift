import Bytes
import Catalog
import Change
import Diagnostics
import EventLog

/// Request for the last versions of rows before a place in the log.
public struct RecallRequest: Sendable {
    struct Row: Sendable {
        let id: RowID
        /// Fingerprint of the delete's schema.
        let relation: UInt64
        /// Key of the row, as the delete contains it.
        let key: [UInt8]
    }

    /// Place of the current entry. The search covers all entries before it, and as many of its changes as `changes`
    /// says.
    let segment: UInt64
    let position: UInt64
    let end: UInt64
    let changes: UInt32

    /// Definitions by which found rows are read.
    struct Reading: Sendable {
        var tables: [UInt32: CatalogTable] = [:]
        /// Position of the current transaction; zero if the log's positions are of another history.
        var moment = LSN.zero
    }

    var reading = Reading()
    var rows: [Row] = []
    var relations: [UInt64: Relation] = [:]
    /// Rows that changes already collected have touched. The hub does not ask for such a row again, because the row's
    /// state is known by then.
    var touched: Set<RowID> = []
}

extension RowRecall {
    /// Returns the request for the row of the current change, and for rows of which later changes have only the keys.
    mutating func request(
        after done: UInt32, of entry: EventLogEntry, _ feed: borrowing LogFeed, _ schemas: SchemaRegistry
    ) throws -> RecallRequest {
        var request = RecallRequest(
            segment: entry.segment, position: entry.position,
            end: entry.position + UInt64(entry.header.byteCount), changes: done)
        try collect(feed, after: done, into: &request, schemas)
        request.reading = schemas.lookback(request.relations.values.map(\.oid))
        return request
    }

    private mutating func collect(
        _ feed: borrowing LogFeed, after done: UInt32, into request: inout RecallRequest, _ schemas: SchemaRegistry
    ) throws {
        var part = try TransactionPart(feed.payload)
        for _ in 0..<done { _ = try part.next() }
        guard try collect(&part, into: &request, { schemas.relation($0) }) else { return }
        var left = Limits.recallAheadBytes
        var newer: [UInt64: Relation] = [:]
        var reader = feed.ahead()
        while left > 0, reader.looksAhead() {
            left -= reader.entry.header.byteCount
            switch reader.entry.kind {
            case .gap: return
            case .relation:
                let fingerprint = RelationCodec.fingerprint(of: reader.payload)
                newer[fingerprint] = schemas.read(try RelationCodec.decode(reader.payload), fingerprint).relation
            case .transaction:
                var part = try TransactionPart(reader.payload)
                let known = newer
                guard try collect(&part, into: &request, { known[$0] ?? schemas.relation($0) }) else { return }
            default: break
            }
        }
    }
}

/// Answer of the log about one row.
public enum RecallAnswer: Sendable {
    case version(UInt64, Relation, [UInt8])
    /// The row is not in the log, or what the log has of it cannot be trusted.
    case missing
    /// The log could not be read: the row counts as missing, and the table's listeners are told.
    case unread
    /// Too many rows for one answer.
    case postponed
}
