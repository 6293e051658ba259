import Bytes
import Change

/// Decoder of single `pgoutput` messages. It rejects malformed input and reports the offset. It copies nothing, and
/// checks every row image to its end, so that later readers can rely on it.
///
/// The decoder has only one bit of state: inside a streamed block, every message begins with its transaction's number.
public struct PgOutputDecoder {
    private var isInStream = false

    public init() {}

    /// Decodes a message and discards the result, for fuzz tests and for measuring the decoder alone.
    public mutating func check(_ bytes: RawSpan) throws(ByteError) { _ = try decode(bytes) }

    @_lifetime(copy bytes)
    mutating func decode(_ bytes: RawSpan) throws(ByteError) -> PgOutputMessage {
        var reader = ByteReader(bytes)
        let kind = try reader.uint8()
        switch kind {
        case UInt8(ascii: "I"), UInt8(ascii: "U"), UInt8(ascii: "D"):
            return try Self.rowMessage(kind, &reader, isInStream)
        case UInt8(ascii: "R"), UInt8(ascii: "Y"), UInt8(ascii: "T"), UInt8(ascii: "M"):
            return try Self.otherMessage(kind, &reader, isInStream)
        default:
            return try controlMessage(kind, &reader)
        }
    }

    @_lifetime(copy reader)
    private static func rowMessage(
        _ kind: UInt8, _ reader: inout ByteReader, _ isInStream: Bool
    ) throws(ByteError) -> PgOutputMessage {
        let xid: UInt32? = isInStream ? try reader.uint32() : nil
        let relation = try reader.uint32()
        var mark = try reader.uint8()
        if kind == UInt8(ascii: "I") {
            guard mark == UInt8(ascii: "N") else { throw refusal("a new row image", reader) }
            let new = try tuple(&reader)
            try reader.expectEnd()
            return .insert(relation: relation, new: new, xid: xid)
        }
        var oldImage = OldImage.none
        var old = RawSpan()
        if mark == UInt8(ascii: "K") || mark == UInt8(ascii: "O") {
            oldImage = mark == UInt8(ascii: "K") ? .key : .full
            old = try tuple(&reader)
            if kind == UInt8(ascii: "U") { mark = try reader.uint8() }
        } else if kind == UInt8(ascii: "D") {
            throw refusal("an old row image", reader)
        }
        if kind == UInt8(ascii: "D") {
            try reader.expectEnd()
            return .delete(relation: relation, oldImage: oldImage, old: old, xid: xid)
        }
        guard mark == UInt8(ascii: "N") else { throw refusal("a new row image", reader) }
        let new = try tuple(&reader)
        try reader.expectEnd()
        return .update(relation: relation, oldImage: oldImage, old: old, new: new, xid: xid)
    }

    /// Checks a TupleData up to its end. Returns its bytes.
    @_lifetime(copy reader)
    private static func tuple(_ reader: inout ByteReader) throws(ByteError) -> RawSpan {
        let start = reader.offset
        var left = try reader.uint16()
        while left > 0 {
            left &-= 1
            switch try reader.uint8() {
            case UInt8(ascii: "t"), UInt8(ascii: "b"):
                let length = try reader.uint32()
                try reader.skip(Int(length))
            case UInt8(ascii: "n"), UInt8(ascii: "u"): break
            default: throw refusal("a column kind (n, u, t or b)", reader)
            }
        }
        return reader.span(from: start)
    }

    @_lifetime(copy reader)
    private static func otherMessage(
        _ kind: UInt8, _ reader: inout ByteReader, _ isInStream: Bool
    ) throws(ByteError) -> PgOutputMessage {
        let xid: UInt32? = isInStream ? try reader.uint32() : nil
        switch kind {
        case UInt8(ascii: "R"):
            let message = try relation(&reader)
            return .relation(message, xid: xid)
        case UInt8(ascii: "Y"):
            let oid = try reader.uint32()
            _ = try name(&reader)
            let name = try name(&reader)
            try reader.expectEnd()
            return .type(oid: oid, name: name, xid: xid)
        case UInt8(ascii: "T"):
            return try truncate(&reader, xid)
        default:
            return try logicalMessage(&reader, xid)
        }
    }

    @_lifetime(reader: copy reader)
    private static func relation(_ reader: inout ByteReader) throws(ByteError) -> RelationMessage {
        let oid = try reader.uint32()
        let schema = try name(&reader).text
        let relationName = try name(&reader).text
        guard let identity = ReplicaIdentity(rawValue: try reader.uint8()) else {
            throw refusal("a replica identity (d, n, f or i)", reader)
        }
        let count = try reader.uint16()
        var columns: [RelationMessage.Column] = []
        for _ in 0..<count {
            let flags = try reader.uint8()
            let columnName = try name(&reader).text
            let typeOID = try reader.uint32()
            let modifier = Int32(bitPattern: try reader.uint32())
            columns.append(
                .init(name: columnName, typeOID: typeOID, typeModifier: modifier, isIdentity: flags & 1 != 0))
        }
        try reader.expectEnd()
        // An empty name of the schema stands for pg_catalog.
        return RelationMessage(
            oid: oid, schema: schema.isEmpty ? "pg_catalog" : schema, name: relationName, identity: identity,
            columns: columns)
    }

    /// Longest accepted name in bytes. PostgreSQL's names have at most 63 bytes, or 255 in the largest build, and may
    /// grow when converted to UTF-8. The stored form has 16 bits for lengths and relies on this limit.
    private static var maximumNameBytes: Int { 4096 }

    @_lifetime(copy reader)
    private static func name(_ reader: inout ByteReader) throws(ByteError) -> RawSpan {
        let name = try reader.cString()
        guard name.byteCount <= maximumNameBytes else { throw refusal("a name of a possible length", reader) }
        return name
    }

    @_lifetime(copy reader)
    private static func truncate(_ reader: inout ByteReader, _ xid: UInt32?) throws(ByteError) -> PgOutputMessage {
        let count = try reader.uint32()
        let options = try reader.uint8()
        guard Int(count) <= reader.remaining / 4 else { throw refusal("as many relations as were announced", reader) }
        var relations: [UInt32] = []
        for _ in 0..<count { relations.append(try reader.uint32()) }
        try reader.expectEnd()
        return .truncate(relations: relations, options: options, xid: xid)
    }

    @_lifetime(copy reader)
    private static func logicalMessage(_ reader: inout ByteReader, _ xid: UInt32?) throws(ByteError) -> PgOutputMessage
    {
        let flags = try reader.uint8()
        let lsn = LSN(try reader.uint64())
        let prefix = try reader.cString()
        let length = try reader.uint32()
        let content = try reader.span(Int(length))
        try reader.expectEnd()
        return .message(isTransactional: flags & 1 != 0, lsn: lsn, prefix: prefix, content: content, xid: xid)
    }

    @_lifetime(copy reader)
    private mutating func controlMessage(_ kind: UInt8, _ reader: inout ByteReader) throws(ByteError) -> PgOutputMessage
    {
        switch kind {
        case UInt8(ascii: "B"):
            let lsn = LSN(try reader.uint64())
            let time = Int64(bitPattern: try reader.uint64())
            let xid = try reader.uint32()
            try reader.expectEnd()
            return .begin(commitLSN: lsn, time: PostgresTime.unixMicroseconds(fromPostgres: time), xid: xid)
        case UInt8(ascii: "C"):
            let (commit, end, time) = try Self.commit(&reader)
            return .commit(commitLSN: commit, endLSN: end, time: time)
        case UInt8(ascii: "O"):
            try reader.skip(8)
            let name = try Self.name(&reader)
            try reader.expectEnd()
            return .origin(name: name)
        default:
            return try streamMessage(kind, &reader)
        }
    }

    @_lifetime(copy reader)
    private mutating func streamMessage(_ kind: UInt8, _ reader: inout ByteReader) throws(ByteError) -> PgOutputMessage
    {
        switch kind {
        case UInt8(ascii: "S"):
            let xid = try reader.uint32()
            let isFirst = try reader.uint8() == 1
            try reader.expectEnd()
            isInStream = true
            return .streamStart(xid: xid, isFirst: isFirst)
        case UInt8(ascii: "E"):
            try reader.expectEnd()
            isInStream = false
            return .streamStop
        case UInt8(ascii: "c"):
            let xid = try reader.uint32()
            let (commit, end, time) = try Self.commit(&reader)
            return .streamCommit(xid: xid, commitLSN: commit, endLSN: end, time: time)
        case UInt8(ascii: "A"):
            let xid = try reader.uint32()
            let subtransaction = try reader.uint32()
            try reader.expectEnd()
            return .streamAbort(xid: xid, subtransaction: subtransaction)
        default:
            throw ByteError(expected: "a pgoutput message of protocol 1 or 2", offset: 0)
        }
    }

    @_lifetime(reader: copy reader)
    private static func commit(_ reader: inout ByteReader) throws(ByteError) -> (LSN, LSN, Int64) {
        try reader.skip(1)
        let commit = LSN(try reader.uint64())
        let end = LSN(try reader.uint64())
        let time = Int64(bitPattern: try reader.uint64())
        try reader.expectEnd()
        return (commit, end, PostgresTime.unixMicroseconds(fromPostgres: time))
    }

    private static func refusal(_ expected: StaticString, _ reader: borrowing ByteReader) -> ByteError {
        ByteError(expected: expected, offset: reader.offset)
    }
}
