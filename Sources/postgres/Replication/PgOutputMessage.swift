import Bytes
import Change

/// Message of PostgreSQL's `pgoutput`, protocol versions 1 and 2. Its row images are borrowed from the input.
///
/// PostgreSQL, "Logical Replication Message Formats". `xid` is nil outside a streamed block.
enum PgOutputMessage: ~Escapable {
    case begin(commitLSN: LSN, time: Int64, xid: UInt32)
    case commit(commitLSN: LSN, endLSN: LSN, time: Int64)
    case origin(name: RawSpan)
    case relation(RelationMessage, xid: UInt32?)
    case type(oid: UInt32, name: RawSpan, xid: UInt32?)
    case insert(relation: UInt32, new: RawSpan, xid: UInt32?)
    case update(relation: UInt32, oldImage: OldImage, old: RawSpan, new: RawSpan, xid: UInt32?)
    case delete(relation: UInt32, oldImage: OldImage, old: RawSpan, xid: UInt32?)
    case truncate(relations: [UInt32], options: UInt8, xid: UInt32?)
    case message(isTransactional: Bool, lsn: LSN, prefix: RawSpan, content: RawSpan, xid: UInt32?)
    case streamStart(xid: UInt32, isFirst: Bool)
    case streamStop
    case streamCommit(xid: UInt32, commitLSN: LSN, endLSN: LSN, time: Int64)
    case streamAbort(xid: UInt32, subtransaction: UInt32)
}

/// Content of a Relation message: the schema of the rows that follow it.
struct RelationMessage: Equatable {
    struct Column: Equatable {
        var name: String
        var typeOID: UInt32
        var typeModifier: Int32
        var isIdentity: Bool
    }

    var oid: UInt32
    var schema: String
    var name: String
    var identity: ReplicaIdentity
    var columns: [Column]
}
