import Bytes
import Change

/// Encoder of `pgoutput` messages of protocol 1 and 2. It writes the bytes that PostgreSQL sends, and so is the reverse
/// of the decoder.
///
/// The format is described in PostgreSQL's "Logical Replication Message Formats". The encoder shares no code with the
/// decoder. It also encodes messages that a server would never send, so that tests can use them. Callers pass `xid`
/// only inside a streamed block.
public enum PgOutput {
    public struct Column: Sendable {
        public var name: String
        public var type: UInt32
        public var modifier: Int32
        public var isIdentity: Bool

        public init(_ name: String, type: UInt32 = 25, modifier: Int32 = -1, isIdentity: Bool = false) {
            self.name = name
            self.type = type
            self.modifier = modifier
            self.isIdentity = isIdentity
        }
    }

    /// Old row image: its key columns only, or the whole row.
    public enum Old: Sendable {
        case key([Cell])
        case full([Cell])
    }

    // MARK: Transactions

    public static func begin(commit: UInt64, time: Int64 = 0, xid: UInt32 = 7) -> [UInt8] {
        message("B") {
            $0.append(big: commit)
            $0.append(big: UInt64(bitPattern: time))
            $0.append(big: xid)
        }
    }

    public static func commit(_ commit: UInt64, end: UInt64, time: Int64 = 0) -> [UInt8] {
        message("C") { appendCommit(commit, end, time, to: &$0) }
    }

    public static func origin(_ name: String, commit: UInt64 = 0) -> [UInt8] {
        message("O") {
            $0.append(big: commit)
            append(name, to: &$0)
        }
    }

    public static func streamStart(xid: UInt32, isFirst: Bool = true) -> [UInt8] {
        message("S") {
            $0.append(big: xid)
            $0.append(UInt8(isFirst ? 1 : 0))
        }
    }

    public static func streamStop() -> [UInt8] { message("E") { _ in } }

    public static func streamCommit(xid: UInt32, commit: UInt64, end: UInt64, time: Int64 = 0) -> [UInt8] {
        message("c") {
            $0.append(big: xid)
            appendCommit(commit, end, time, to: &$0)
        }
    }

    public static func streamAbort(xid: UInt32, subtransaction: UInt32? = nil) -> [UInt8] {
        message("A") {
            $0.append(big: xid)
            $0.append(big: subtransaction ?? xid)
        }
    }

    // MARK: Schemas

    public static func relation(
        _ oid: UInt32, schema: String = "public", _ name: String, identity: ReplicaIdentity = .primaryKey,
        _ columns: [Column], xid: UInt32? = nil
    ) -> [UInt8] {
        message("R", xid) {
            $0.append(big: oid)
            append(schema, to: &$0)
            append(name, to: &$0)
            $0.append(identity.rawValue)
            $0.append(big: UInt16(columns.count))
            for column in columns {
                $0.append(UInt8(column.isIdentity ? 1 : 0))
                append(column.name, to: &$0)
                $0.append(big: column.type)
                $0.append(big: UInt32(bitPattern: column.modifier))
            }
        }
    }

    public static func type(_ oid: UInt32, schema: String = "public", _ name: String, xid: UInt32? = nil) -> [UInt8] {
        message("Y", xid) {
            $0.append(big: oid)
            append(schema, to: &$0)
            append(name, to: &$0)
        }
    }

    // MARK: Changes

    public static func insert(_ oid: UInt32, _ new: [Cell], xid: UInt32? = nil) -> [UInt8] {
        message("I", xid) {
            $0.append(big: oid)
            append("N", new, to: &$0)
        }
    }

    public static func update(_ oid: UInt32, old: Old? = nil, _ new: [Cell], xid: UInt32? = nil) -> [UInt8] {
        message("U", xid) {
            $0.append(big: oid)
            if let old { append(old, to: &$0) }
            append("N", new, to: &$0)
        }
    }

    public static func delete(_ oid: UInt32, _ old: Old, xid: UInt32? = nil) -> [UInt8] {
        message("D", xid) {
            $0.append(big: oid)
            append(old, to: &$0)
        }
    }

    public static func truncate(_ oids: [UInt32], options: UInt8 = 0, xid: UInt32? = nil) -> [UInt8] {
        message("T", xid) {
            $0.append(big: UInt32(oids.count))
            $0.append(options)
            for oid in oids { $0.append(big: oid) }
        }
    }

    public static func logical(
        _ prefix: String, _ content: [UInt8], isTransactional: Bool = true, lsn: UInt64 = 0, xid: UInt32? = nil
    ) -> [UInt8] {
        message("M", xid) {
            $0.append(UInt8(isTransactional ? 1 : 0))
            $0.append(big: lsn)
            append(prefix, to: &$0)
            $0.append(big: UInt32(content.count))
            $0.append(content)
        }
    }

    /// Returns the bytes of a row image without a message around it.
    public static func tuple(_ cells: [Cell]) -> [UInt8] {
        var writer = ByteWriter()
        append(cells, to: &writer)
        return writer.copied()
    }

    // MARK: Pieces

    private static func message(
        _ kind: StaticString, _ xid: UInt32? = nil, _ body: (inout ByteWriter) -> Void
    ) -> [UInt8] {
        var writer = ByteWriter()
        writer.append(kind)
        if let xid { writer.append(big: xid) }
        body(&writer)
        return writer.copied()
    }

    private static func appendCommit(_ commit: UInt64, _ end: UInt64, _ time: Int64, to writer: inout ByteWriter) {
        writer.append(UInt8(0))
        writer.append(big: commit)
        writer.append(big: end)
        writer.append(big: UInt64(bitPattern: time))
    }

    private static func append(_ text: String, to writer: inout ByteWriter) {
        writer.append(text)
        writer.append(UInt8(0))
    }

    private static func append(_ old: Old, to writer: inout ByteWriter) {
        switch old {
        case .key(let cells): append("K", cells, to: &writer)
        case .full(let cells): append("O", cells, to: &writer)
        }
    }

    private static func append(_ mark: StaticString, _ cells: [Cell], to writer: inout ByteWriter) {
        writer.append(mark)
        append(cells, to: &writer)
    }

    private static func append(_ cells: [Cell], to writer: inout ByteWriter) {
        writer.append(big: UInt16(cells.count))
        for cell in cells { append(cell, to: &writer) }
    }

    private static func append(_ cell: Cell, to writer: inout ByteWriter) {
        switch cell {
        case .null: writer.append("n")
        case .unchanged: writer.append("u")
        case .text(let text): append("t", Array(text.utf8), to: &writer)
        case .binary(let bytes): append("b", bytes, to: &writer)
        }
    }

    private static func append(_ mark: StaticString, _ value: [UInt8], to writer: inout ByteWriter) {
        writer.append(mark)
        writer.append(big: UInt32(value.count))
        writer.append(value)
    }
}
