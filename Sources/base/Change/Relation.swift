import Bytes

/// Replica identity of a table, which decides the columns of old row images.
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
    /// Name of the type in the catalog, such as `int8` or `_text`. For a user-defined type, the name without its
    /// schema.
    public var typeName: String
    /// True if the column is part of the replica identity. With REPLICA IDENTITY FULL, every column is.
    public var isIdentity: Bool
    public var isPrimaryKey: Bool
    /// True if PostgreSQL computed the value from other columns later and the stream did not contain it. Relations of
    /// rows as they were received have no such columns.
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

/// Table as it was when its changes were made. Old rows keep their schema: after a change of the schema, the table is
/// another relation with another fingerprint.
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

    /// Indexes of the columns that identify a row: the primary key; without one, the replica identity if it is an
    /// index.
    public var keyColumns: [Int] {
        let primary = columns.indices.filter { columns[$0].isPrimaryKey }
        if !primary.isEmpty { return primary }
        guard identity == .index || identity == .primaryKey else { return [] }
        return columns.indices.filter { columns[$0].isIdentity }
    }

    public func column(named name: String) -> Int? { columns.firstIndex { $0.name == name } }
}

extension Relation: CustomStringConvertible {
    /// Name as SQL writes it, quoted if necessary.
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

/// Stored form of a relation, and the fingerprint by which changes refer to the relation.
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

    /// Returns the fingerprint of an encoded relation. It is the same for the same schema, at any time and on any
    /// machine.
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
