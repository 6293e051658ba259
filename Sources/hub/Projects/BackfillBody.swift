import Bytes
import Change
import Replication

/// Body of a backfill request: rows of a table that an operator read from the database with a login that may read them.
///
///     {"system": "7312345678901234567", "database": 16384, "reading": "9f86d081884c7d65",
///      "lsn": "0/1B2C3D4", "part": 0, "last": true,
///      "table": {"schema": "public", "name": "notes", "oid": 16400,
///                "columns": [{"name": "id", "type": "int8", "type_oid": 20, "type_modifier": -1, "key": true}]},
///      "rows": [["1", null, {}]]}
///
/// A value is PostgreSQL's text for it, null, or `{}` if the operator leaves the value out.
enum BackfillBody {
    static let names = ["system", "database", "reading", "lsn", "part", "last", "table", "rows"]
    static let depth = 4

    /// Returns the identity of the database from which the rows were read.
    static func database(_ members: JSONObject) throws(OperatorSignal.Refusal) -> FollowedDatabase {
        guard let system = members["system"]?.string.flatMap({ UInt64($0) }),
            let number = members["database"]?.integer.flatMap({ UInt32(exactly: $0) })
        else {
            throw OperatorSignal.Refusal(
                reason: "system is pg_control_system's system_identifier, as a text; database is its oid in pg_database"
            )
        }
        return FollowedDatabase(system: system, number: number)
    }

    /// Returns the rows of the request, after checks of all members.
    static func rows(_ members: JSONObject) throws(OperatorSignal.Refusal) -> KeptRows {
        guard let reading = members["reading"]?.string, reading.utf8.count == 16,
            reading.allSatisfy(\.isHexDigit), let reading = UInt64(reading, radix: 16)
        else { throw OperatorSignal.Refusal(reason: "reading is 16 hexadecimal digits, the same in each part") }
        guard let lsn = members["lsn"]?.string.flatMap({ LSN($0) }) else {
            throw OperatorSignal.Refusal(
                reason: "lsn is where in PostgreSQL's log the rows were read, such as 0/1B2C3D4")
        }
        guard let part = members["part"]?.integer.flatMap({ UInt32(exactly: $0) }), let isLast = members["last"]?.bool
        else {
            throw OperatorSignal.Refusal(
                reason: "part is the number of the request, from 0 on; last says whether it is")
        }
        let relation = try relation(members["table"]?.object)
        guard let rows = members["rows"]?.array else { throw OperatorSignal.Refusal(reason: "rows is an array") }
        var kept: [KeptRows.Row] = []
        for row in rows { kept.append(KeptRows.Row(image: try image(row, relation))) }
        var schema = ByteWriter()
        RelationCodec.encode(relation, to: &schema)
        return KeptRows(
            reading: reading, lsn: lsn, time: 0, part: part, isLast: isLast, schema: schema.copied(), rows: kept)
    }

    /// Returns the qualified name of the rows' table; empty if the schema cannot be decoded.
    static func table(of rows: KeptRows) -> String {
        (try? RelationCodec.decode(rows.schema.rawBytes))?.description ?? ""
    }

    private static func relation(_ table: JSONObject?) throws(OperatorSignal.Refusal) -> Relation {
        guard let schema = table?["schema"]?.string, let name = table?["name"]?.string,
            let oid = table?["oid"]?.integer.flatMap({ UInt32(exactly: $0) }), let columns = table?["columns"]?.array,
            (1...1600).contains(columns.count), [schema, name].allSatisfy({ $0.utf8.count <= Int(UInt16.max) })
        else { throw OperatorSignal.Refusal(reason: "table has schema, name, oid and columns") }
        var known: [Column] = []
        for column in columns { known.append(try Self.column(column.object)) }
        let relation = Relation(oid: oid, schema: schema, name: name, identity: .full, columns: known)
        guard !relation.keyColumns.isEmpty else {
            throw OperatorSignal.Refusal(reason: "a table without a key has no rows that could be told apart")
        }
        return relation
    }

    private static func column(_ column: JSONObject?) throws(OperatorSignal.Refusal) -> Column {
        guard let name = column?["name"]?.string, let type = column?["type"]?.string,
            let oid = column?["type_oid"]?.integer.flatMap({ UInt32(exactly: $0) }),
            let modifier = column?["type_modifier"]?.integer.flatMap({ Int32(exactly: $0) }),
            let isKey = column?["key"]?.bool, [name, type].allSatisfy({ $0.utf8.count <= Int(UInt16.max) })
        else { throw OperatorSignal.Refusal(reason: "a column has name, type, type_oid, type_modifier and key") }
        return Column(
            name: name, typeOID: oid, typeModifier: modifier, typeName: type, isIdentity: true, isPrimaryKey: isKey)
    }

    private static func image(_ row: JSONValue, _ relation: Relation) throws(OperatorSignal.Refusal) -> [UInt8] {
        guard let values = row.array, values.count == relation.columns.count else {
            throw OperatorSignal.Refusal(reason: "a row is an array with a value for each column")
        }
        var image = ByteWriter(capacity: 16 * values.count)
        image.append(big: UInt16(values.count))
        for (value, column) in zip(values, relation.columns) {
            switch value {
            case .string(let text):
                image.append("t")
                image.append(big: UInt32(text.utf8.count))
                image.append(text)
            case .null where !column.isPrimaryKey: image.append("n")
            case .object(let nothing) where nothing.isEmpty && !column.isPrimaryKey: image.append("u")
            default:
                throw OperatorSignal.Refusal(reason: "a value is a text, null or {}, and of a key a text")
            }
        }
        let columnCount = Tuple(image.bytes).columnCount
        assert(columnCount == relation.columns.count, "an image has a value for each column of its relation")
        return image.copied()
    }
}
