import Bytes
import Change

/// Value of one column of a recorded row, copied out of the log.
public enum RowValue: Sendable, Hashable {
    case null
    /// A large value that the change did not touch, so that PostgreSQL did not send it. Unknown, not NULL.
    case unchanged
    case text([UInt8])
    case binary([UInt8])
    /// A value that must not be shown. Equal values have equal tags.
    case masked(UInt64)

    init(_ value: borrowing ColumnValue) {
        switch copy value {
        case .null: self = .null
        case .unchanged: self = .unchanged
        case .text(let text): self = .text(text.copied())
        case .binary(let bytes): self = .binary(bytes.copied())
        }
    }

    /// True if the value is known; NULL counts as known.
    public var isKnown: Bool { self != .unchanged }

    /// Text as PostgreSQL writes it, or the mark of a masked value; nil for anything that is not text.
    public var plainText: String? {
        switch self {
        case .text(let bytes): String(decoding: bytes, as: UTF8.self)
        case .masked(let tag): MaskMark.short(tag)
        case .null, .unchanged, .binary: nil
        }
    }

    /// Returns the value as JSON, by the column's type; nil for an unknown value.
    public func json(_ rendering: JSONRendering) -> String? {
        switch self {
        case .null: return "null"
        case .unchanged: return nil
        case .masked(let tag): return "\"\(MaskMark.short(tag))\""
        case .text(let bytes):
            var writer = ByteWriter(capacity: bytes.count + 16)
            rendering.append(bytes.rawBytes, to: &writer)
            return writer.bytes.text
        case .binary(let bytes):
            var writer = ByteWriter(capacity: bytes.count * 2 + 2)
            writer.append("\"")
            // SAFETY: as above.
            Hex.append(unsafe bytes.span.bytes, to: &writer)
            writer.append("\"")
            return writer.bytes.text
        }
    }
}

/// A relation with derived data that is computed once and used for every row.
public final class RecordedRelation: Sendable {
    public let relation: Relation
    public let fingerprint: UInt64
    public let renderings: [JSONRendering]
    /// Indexes of the columns that identify a row; empty if no columns do.
    public let keyColumns: [Int]
    public let tableKey: UInt64

    public init(_ relation: Relation, fingerprint: UInt64) {
        self.relation = relation
        self.fingerprint = fingerprint
        renderings = relation.columns.map { BuiltInType.rendering(of: $0.typeOID) }
        keyColumns = relation.keyColumns
        tableKey = RowKey.table(schema: relation.schema, name: relation.name)
    }

    /// Decodes the payload of a schema entry.
    public convenience init(stored payload: RawSpan) throws(ByteError) {
        let relation = try RelationCodec.decode(payload)
        self.init(relation, fingerprint: RelationCodec.fingerprint(of: payload))
    }

    public var table: TableName { TableName(schema: relation.schema, name: relation.name) }

    /// Returns the hash by which segments index the row; nil if the values do not contain the whole key.
    public func rowKey(_ row: [RowValue]) -> UInt64? {
        guard !keyColumns.isEmpty else { return nil }
        var hash = RowKey.row(table: tableKey)
        for column in keyColumns {
            guard column < row.count, case .text(let bytes) = row[column] else { return nil }
            hash.combine(bytes.rawBytes)
        }
        return hash.value
    }

    /// Hash by which segments index changes of rows without a known key.
    public var unkeyed: UInt64 { RowKey.unkeyed(table: tableKey) }
}

/// Name of a table in two parts.
public struct TableName: Sendable, Hashable {
    public var schema: String
    public var name: String

    public init(schema: String, name: String) {
        self.schema = schema
        self.name = name
    }

    /// Parses `notes`, `public.notes` or `"Odd schema"."odd ""table"""`; nil for anything else. Unlike in SQL, names
    /// without quotes keep their case too, because names are compared with the log letter by letter.
    public init?(_ text: String) {
        guard let parts = QualifiedName.parts(text), (1...2).contains(parts.count) else { return nil }
        self.init(schema: parts.count == 2 ? parts[0] : "public", name: parts[parts.count - 1])
    }
}

extension TableName: CustomStringConvertible {
    public var description: String { SQLName.quoted(schema) + "." + SQLName.quoted(name) }
}

/// Parser of names with dots between them, each with or without double quotes.
enum QualifiedName {
    static func parts(_ text: String) -> [String]? {
        var rest = Substring(text)
        var parts: [String] = []
        while true {
            guard let part = rest.hasPrefix("\"") ? quoted(&rest) : plain(&rest), !part.isEmpty else { return nil }
            parts.append(part)
            if rest.isEmpty { return parts }
            guard rest.removeFirst() == "." else { return nil }
        }
    }

    private static func plain(_ rest: inout Substring) -> String? {
        let part = rest.prefix { $0 != "." && $0 != "\"" }
        rest = rest.dropFirst(part.count)
        return String(part)
    }

    private static func quoted(_ rest: inout Substring) -> String? {
        var part = ""
        rest.removeFirst()
        while let character = rest.popFirst() {
            guard character == "\"" else {
                part.append(character)
                continue
            }
            guard rest.hasPrefix("\"") else { return part }
            part.append("\"")
            rest.removeFirst()
        }
        return nil
    }
}
