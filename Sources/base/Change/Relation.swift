import Bytes

/// What an old row image holds, as the table's replica identity had it.
public enum ReplicaIdentity: UInt8, Sendable {
    case primaryKey = 0x64  // d
    case nothing = 0x6e  // n
    case full = 0x66  // f
    case index = 0x69  // i
}

public struct Column: Sendable, Hashable {
    public var name: String
    public var typeOID: UInt32
    public var typeModifier: Int32
    /// The catalog's name of the type, `int8` or `_text`; for a type of the user's own its plain name.
    public var typeName: String
    /// Part of the replica identity; with REPLICA IDENTITY FULL every column is.
    public var isIdentity: Bool
    public var isPrimaryKey: Bool
    /// It was not sent with its row but computed of other columns. Rows that are stored have none of these.
    public var isComputed: Bool

    public init(
        name: String, typeOID: UInt32, typeModifier: Int32 = -1, typeName: String, isIdentity: Bool, isPrimaryKey: Bool,
        isComputed: Bool = false
    ) {
        self.name = name
        self.typeOID = typeOID
        self.typeModifier = typeModifier
        self.typeName = typeName
        self.isIdentity = isIdentity
        self.isPrimaryKey = isPrimaryKey
        self.isComputed = isComputed
    }
}

/// A table as it was when its changes were made. Old rows keep the schema they had: another schema is another
/// relation with another fingerprint.
public struct Relation: Sendable, Hashable {
    public var oid: UInt32
    public var schema: String
    public var name: String
    public var identity: ReplicaIdentity
    public var columns: [Column]

    public init(oid: UInt32, schema: String, name: String, identity: ReplicaIdentity, columns: [Column]) {
        self.oid = oid
        self.schema = schema
        self.name = name
        self.identity = identity
        self.columns = columns
    }

    /// The columns that tell one row from another: the primary key, else the replica identity where it is an index.
    public var keyColumns: [Int] {
        let primary = columns.indices.filter { columns[$0].isPrimaryKey }
        if !primary.isEmpty { return primary }
        guard identity == .index || identity == .primaryKey else { return [] }
        return columns.indices.filter { columns[$0].isIdentity }
    }

    public func column(named name: String) -> Int? { columns.firstIndex { $0.name == name } }
}

extension Relation: CustomStringConvertible {
    /// As SQL would write it, quoted where it must be.
    public var description: String { SQLName.quoted(schema) + "." + SQLName.quoted(name) }
}

public enum SQLName {
    public static func quoted(_ name: String) -> String {
        let plain = name.utf8.enumerated().allSatisfy { index, byte in
            (0x61...0x7a).contains(byte) || byte == 0x5f
                || (index > 0 && ((0x30...0x39).contains(byte) || byte == 0x24))
        }
        if plain, !name.isEmpty { return name }
        return "\"" + name.split(separator: "\"", omittingEmptySubsequences: false).joined(separator: "\"\"") + "\""
    }
}

/// The stored form of a relation, and the fingerprint by which changes refer to it.
public enum RelationCodec {
    private static let version: UInt8 = 1

    public static func encode(_ relation: Relation, to writer: inout ByteWriter) {
        writer.append(version)
        writer.append(relation.identity.rawValue)
        writer.append(little: UInt16(relation.columns.count))
        writer.append(little: relation.oid)
        append(relation.schema, to: &writer)
        append(relation.name, to: &writer)
        for column in relation.columns {
            writer.append((column.isIdentity ? 1 : 0) | (column.isPrimaryKey ? 2 : 0))
            writer.append(little: column.typeOID)
            writer.append(little: UInt32(bitPattern: column.typeModifier))
            append(column.name, to: &writer)
            append(column.typeName, to: &writer)
        }
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> Relation {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == version else { throw ByteError(expected: "a relation of version 1", offset: 0) }
        guard let identity = ReplicaIdentity(rawValue: try reader.uint8()) else {
            throw ByteError(expected: "a replica identity", offset: 1)
        }
        let count = try reader.littleUInt16()
        let oid = try reader.littleUInt32()
        let schema = try text(&reader)
        let name = try text(&reader)
        var columns: [Column] = []
        for _ in 0..<count { columns.append(try column(&reader)) }
        try reader.expectEnd()
        return Relation(oid: oid, schema: schema, name: name, identity: identity, columns: columns)
    }

    /// The same for the same schema, whenever and wherever it is computed.
    public static func fingerprint(of encoded: RawSpan) -> UInt64 {
        var hash = KeyHash(seed: 0x7265_6c61_7469_6f6e)
        hash.combine(encoded)
        return hash.value
    }

    @_lifetime(reader: copy reader)
    private static func column(_ reader: inout ByteReader) throws(ByteError) -> Column {
        let flags = try reader.uint8()
        let oid = try reader.littleUInt32()
        let modifier = Int32(bitPattern: try reader.littleUInt32())
        let name = try text(&reader)
        let typeName = try text(&reader)
        return Column(
            name: name, typeOID: oid, typeModifier: modifier, typeName: typeName,
            isIdentity: flags & 1 != 0, isPrimaryKey: flags & 2 != 0)
    }

    private static func append(_ text: String, to writer: inout ByteWriter) {
        writer.append(little: UInt16(text.utf8.count))
        writer.append(text)
    }

    @_lifetime(reader: copy reader)
    private static func text(_ reader: inout ByteReader) throws(ByteError) -> String {
        let length = try reader.littleUInt16()
        return try reader.span(Int(length)).text
    }
}
