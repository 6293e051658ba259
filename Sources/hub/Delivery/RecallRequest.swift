import Bytes
import Catalog
import Change
import Diagnostics
import EventLog

/// Request for the last versions of rows before a place in the log.
public struct RecallRequest: Sendable {
    struct Row: Sendable {
        let id: RowID
        /// Fingerprint of the schema of the delete or update that lacks the row.
        let relation: UInt64
        /// Key of the row, as the delete or update contains it.
        let key: [UInt8]
    }

    /// Segment of the current entry. The search covers all entries before the current one, and its first `changes`
    /// changes.
    let segment: UInt64
    /// Byte position at which the current entry begins in its segment.
    let position: UInt64
    /// Byte position at which the current entry ends in its segment.
    let end: UInt64
    /// Number of the current entry's changes that the search covers.
    let changes: UInt32

    /// Definitions of tables and types that the search needs to read stored rows.
    struct Reading: Sendable {
        var tables: [UInt32: CatalogTable] = [:]
        /// WAL position of the current transaction; zero if the log's positions belong to another history.
        var moment = LSN.zero
    }

    var reading = Reading()
    var rows: [Row] = []
    var relations: [UInt64: Relation] = [:]
    /// Rows that the changes collected so far have changed. The hub does not ask for such a row again: once it reaches
    /// those changes, it knows the row.
    var touched: Set<RowID> = []
}

extension RowRecall {
    /// Returns the request for the row of the current change, and for rows of which later changes contain only the key.
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

/// Answer to a search of the log for the last version of one row.
public enum RecallAnswer: Sendable {
    /// The last version of the row, with the fingerprint of its schema and the schema.
    case version(UInt64, Relation, [UInt8])
    /// The log does not have the row, or may lack changes of it.
    case missing
    /// The log could not be read. The row counts as missing, and the hub tells the table's listeners.
    case unread
    /// The answers to the request exceed the size limit, so the hub must ask for this row again.
    case postponed
}
