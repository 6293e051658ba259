import Policy
import Postgres
import TestSupport
import Testing

/// `PolicyCatalog` of one table in a real database, for any texts about the table.
struct CatalogStage {
    let database: TestDatabase
    private(set) var catalog = PolicyCatalog()
    private var facts: [UInt32: TypeFacts] = [:]

    init(_ database: TestDatabase) throws {
        self.database = database
        catalog.timeZone = "UTC"
        catalog.text = .plainUTF8
        let twins = try database.rows(
            """
            SELECT c.castsource FROM pg_cast c JOIN pg_type t ON t.oid = c.castsource JOIN pg_proc p ON p.oid = t.typoutput
            WHERE c.casttarget = 25 AND c.castmethod = 'b' AND p.prosrc = 'textout' AND t.oid >= 16384
            """)
        for row in twins { catalog.textTwins.insert(try number(row[0])) }
    }

    /// Returns the text that `pg_get_expr` prints for the expression, if it is a policy of the table.
    func deparsed(_ sql: String, on table: String) throws -> String {
        try database.run("DROP POLICY IF EXISTS p ON \(table); CREATE POLICY p ON \(table) USING (\(sql));")
        try database.run("SET search_path = pg_catalog")
        defer { _ = try? database.run("RESET search_path") }
        return try #require(
            try database.value("SELECT pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polname = 'p'"))
    }

    /// Reads every object of the catalog that a text names. Also reads those that the bodies of its functions name.
    mutating func learn(_ text: String) throws {
        guard let names = PolicyCompiler.names(in: text) else { return }
        for type in names.types { try learn(type: type) }
        for name in names.operators where catalog.operators[name] == nil { try learn(operator: name) }
        for name in names.relations where catalog.relations[name] == nil { try learn(relation: name) }
        for name in names.functions where catalog.functions[name] == nil { try learn(function: name) }
    }

    private mutating func learn(type name: String) throws {
        guard catalog.types[name] == nil,
            let oid = try database.rows("SELECT to_regtype($1)::oid", [name])[0][0]
        else { return }
        catalog.types[name] = try type(number(String(oid)))
        let array = try database.rows("SELECT format_type(typarray, NULL), typarray FROM pg_type WHERE oid = $1", [oid])
        if array[0][1] != "0" { catalog.types[array[0][0] ?? ""] = try type(number(array[0][1])) }
    }

    private mutating func type(_ oid: UInt32) throws -> TypeFacts {
        if let known = facts[oid] { return known }
        try database.run("SET search_path = pg_catalog")
        defer { _ = try? database.run("RESET search_path") }
        let row = try database.rows(
            """
            SELECT format_type(oid, NULL), typtype, typbasetype,
                CASE WHEN typsubscript = 'array_subscript_handler'::regproc THEN typelem ELSE 0 END,
                (SELECT string_agg(enumlabel, '|' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = $1)
            FROM pg_type WHERE oid = $1
            """, [String(oid)])[0]
        let made: TypeFacts
        if row[2] != "0" {
            made = try type(number(row[2]))
        } else if row[3] != "0" {
            let element = try type(number(row[3]))
            made = TypeFacts(
                oid: oid, name: (row[0] ?? ""), shape: element.shape == .other ? .other : .array(of: element))
        } else if row[1] == "e" {
            let labels = (row[4] ?? "").split(separator: "|").map(String.init)
            made = TypeFacts(oid: oid, name: (row[0] ?? ""), shape: .enumeration(labels: labels))
        } else {
            made = TypeFacts(oid: oid, name: (row[0] ?? ""), shape: row[1] == "b" && oid < 16_384 ? .base : .other)
        }
        facts[oid] = made
        return made
    }

    private mutating func learn(operator name: QualifiedName) throws {
        let rows = try database.rows(
            """
            SELECT o.oid, oprleft, oprright, oprresult, provolatile FROM pg_operator o JOIN pg_proc p ON p.oid = oprcode
            WHERE oprname = $1 AND oprnamespace = to_regnamespace(quote_ident($2))
            """, [name.name, name.schema])
        var found: [OperatorFacts] = []
        for row in rows {
            found.append(
                OperatorFacts(
                    oid: try number(row[0]), left: row[1] == "0" ? nil : try type(number(row[1])),
                    right: try type(number(row[2])), result: try type(number(row[3])),
                    volatility: Self.volatility((row[4] ?? ""))))
        }
        catalog.operators[name] = found
    }

    private static func volatility(_ letter: String) -> FunctionFacts.Volatility {
        letter == "i" ? .immutable : letter == "s" ? .stable : .volatile
    }

    mutating func learn(relation name: QualifiedName) throws {
        let columns = try database.rows(
            """
            SELECT attname, atttypid, attcollation, attgenerated, attrelid FROM pg_attribute
            WHERE attrelid = to_regclass(quote_ident($1) || '.' || quote_ident($2)) AND attnum > 0 AND NOT attisdropped
            ORDER BY attnum
            """, [name.schema, name.name])
        var facts: [ColumnFacts] = []
        for row in columns {
            let collation: Collation =
                row[2] == "0" ? .none : row[2] == "100" ? .deterministic(name: nil) : .bytewise
            facts.append(ColumnFacts(name: (row[0] ?? ""), type: try type(number(row[1])), collation: collation))
        }
        let carried = Set(columns.indices.filter { columns[$0][3] == "" })
        catalog.relations[name] = RelationFacts(
            oid: try number(columns[0][4]), name: name, columns: facts, carried: carried, canBeFollowed: true)
    }

    private mutating func learn(function name: QualifiedName) throws {
        let rows = try database.rows(
            """
            SELECT p.oid, array_to_string(proargtypes::oid[], ','), prorettype, proretset, proisstrict, provolatile,
                lanname, prosecdef, proowner, prosrc, array_to_string(proargnames, ',')
            FROM pg_proc p JOIN pg_language l ON l.oid = prolang
            WHERE proname = $1 AND pronamespace = to_regnamespace(quote_ident($2)) AND prokind = 'f'
            """, [name.name, name.schema])
        catalog.functions[name] = []
        for row in rows {
            var arguments: [TypeFacts] = []
            for oid in (row[1] ?? "").split(separator: ",") { arguments.append(try type(number(String(oid)))) }
            let names = (row[10] ?? "").split(separator: ",").map(String.init)
            let isUsers = try number(row[0]) >= 16_384 && row[6] == "sql"
            let body =
                isUsers ? try body((row[9] ?? ""), arguments, names, isSet: row[3] == "t", function: name.name) : nil
            catalog.functions[name, default: []].append(
                FunctionFacts(
                    oid: try number(row[0]), arguments: arguments, result: try type(number(row[2])),
                    returnsSet: row[3] == "t", isStrict: row[4] == "t", volatility: Self.volatility((row[5] ?? "")),
                    language: (row[6] ?? ""), isSecurityDefiner: row[7] == "t", owner: try number(row[8]),
                    canonicalBody: body, argumentNames: names))
            if let body { try learn(body) }
        }
    }

    /// Returns form 2 of `FunctionFacts.canonicalBody`, with the arguments' names if they have any.
    private func body(
        _ source: String, _ arguments: [TypeFacts], _ names: [String], isSet: Bool, function: String
    ) throws -> String {
        var source = source
        for index in arguments.indices.reversed() {
            source = source.replacing("$\(index + 1)", with: "argument.\"$\(index + 1)\"")
        }
        for name in names { source = source.replacing("\(function).\(name)", with: "argument.\(name)") }
        let carried = arguments.enumerated().map { index, type in
            "NULL::\(type.name) AS \"$\(index + 1)\""
                + (index < names.count ? ", NULL::\(type.name) AS \(names[index])" : "")
        }
        let from = carried.isEmpty ? "" : " FROM (SELECT \(carried.joined(separator: ", "))) argument"
        try database.run("CREATE TEMP VIEW body AS SELECT \(isSet ? "ARRAY" : "")(\(source)) AS x\(from)")
        try database.run("SET search_path = pg_catalog")
        defer { _ = try? database.run("RESET search_path; DROP VIEW pg_temp.body") }
        return try #require(try database.value("SELECT pg_get_viewdef('pg_temp.body'::regclass)"))
    }
}

/// Returns the number in a text.
private func number(_ text: String?) throws -> UInt32 { try #require(text.flatMap { UInt32($0) }) }

extension TestDatabase {
    func rows(_ sql: String, _ parameters: [String?] = []) throws -> [[String?]] {
        try connection.query(sql, parameters).values
    }
}
