import Bytes
import Catalog
import Change

/// Rows whose last version before a place in the log is wanted.
public struct RecallRequest: Sendable {
    struct Row: Sendable {
        let id: RowID
        /// The schema of the delete.
        let relation: UInt64
        /// What the delete says of the row.
        let key: [UInt8]
    }

    /// The entry at hand, and how many of its changes have passed: they and all before them count.
    let segment: UInt64
    let position: UInt64
    let end: UInt64
    let changes: UInt32

    /// Way in which the rows that are found are read.
    struct Reading: Sendable {
        var tables: [UInt32: CatalogTable] = [:]
        /// Position of the transaction at hand; zero where the log's positions are of another history.
        var moment = LSN.zero
    }

    var reading = Reading()
    var rows: [Row] = []
    var relations: [UInt64: Relation] = [:]
    /// Rows that later changes say more about: not to be asked for.
    var touched: Set<RowID> = []
}

/// What the log says of a row.
public enum RecallAnswer: Sendable {
    case version(UInt64, Relation, [UInt8])
    /// It is not there, or what is there cannot be trusted.
    case missing
    /// The log could not be read: the row counts as missing, and the table's listeners are told.
    case unread
    /// There were too many for one answer.
    case postponed
}
