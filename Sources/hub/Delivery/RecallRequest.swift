import Bytes
import Catalog
import Change

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
