import Asking
import Policy
import Postgres

/// Function as its row in `pg_proc` describes it.
struct FunctionRow {
    var oid: UInt32
    var name: QualifiedName
    var arguments: [UInt32]
    var result: UInt32
    var returnsSet: Bool
    var isStrict: Bool
    var volatility: FunctionFacts.Volatility
    var language: String
    var isSecurityDefiner: Bool
    var owner: UInt32
    var ownerName: String
    /// Body of a user's SQL function that may consist of one SELECT; nil for other functions.
    var body: FunctionBody?

    init?(_ row: [String?]) {
        guard let oid = row.number(0), let schema = row[1], let name = row[2], let arguments = row.numbers(3),
            let result = row.number(4), let volatility = FunctionFacts.Volatility(catalog: row[7]),
            let language = row[8], let owner = row.number(10), let ownerName = row[11]
        else { return nil }
        self.oid = oid
        self.name = QualifiedName(schema, name)
        self.arguments = arguments.compactMap { UInt32(exactly: $0) }
        self.result = result
        returnsSet = row.flag(5)
        isStrict = row.flag(6)
        self.volatility = volatility
        self.language = language
        isSecurityDefiner = row.flag(9)
        self.owner = owner
        self.ownerName = ownerName
        body = FunctionBody(row)
    }

    func facts(_ types: TypeBook, body canonical: String?) -> FunctionFacts {
        FunctionFacts(
            oid: oid, arguments: arguments.map { types.facts($0) }, result: types.facts(result), returnsSet: returnsSet,
            isStrict: isStrict, volatility: volatility, language: language, isSecurityDefiner: isSecurityDefiner,
            owner: owner, canonicalBody: canonical,
            argumentNames: body?.argumentNames ?? [])
    }
}

extension FunctionBody {
    /// Reads the body from the row's columns that follow those of the function itself.
    init?(_ row: [String?]) {
        guard row.flag(12), let source = row[14] else { return nil }
        if let resolved = row[13] {
            guard let select = FunctionBody.select(resolved) else { return nil }
            text = select
            isResolved = true
        } else {
            text = source
            isResolved = false
        }
        searchPath = row[15]
        arguments = row[16] ?? ""
        argumentNames = row[17]?.split(separator: "\u{1f}", omittingEmptySubsequences: false).map { String($0) } ?? []
    }

    /// Returns the SELECT in a body `RETURN …` or `BEGIN ATOMIC … END`, as PostgreSQL prints it. Nil for any other
    /// body.
    private static func select(_ body: String) -> String? {
        if body.hasPrefix("RETURN ") { return "SELECT " + body.dropFirst("RETURN ".count) }
        let words = body.split(whereSeparator: \.isWhitespace)
        guard words.count > 3, words[0] == "BEGIN", words[1] == "ATOMIC", words[words.count - 1] == "END" else {
            return nil
        }
        return String(body[words[2].startIndex..<words[words.count - 1].startIndex])
    }
}

/// Operator as its row in `pg_operator` describes it.
struct OperatorRow {
    var oid: UInt32
    var name: QualifiedName
    var left: UInt32?
    var right: UInt32
    var result: UInt32
    var volatility: FunctionFacts.Volatility

    init?(_ row: [String?]) {
        guard let oid = row.number(0), let schema = row[1], let name = row[2], let left = row.number(3),
            let right = row.number(4), let result = row.number(5),
            let volatility = FunctionFacts.Volatility(catalog: row[6])
        else { return nil }
        self.oid = oid
        self.name = QualifiedName(schema, name)
        self.left = left == 0 ? nil : left
        self.right = right
        self.result = result
        self.volatility = volatility
    }

    func facts(_ types: TypeBook) -> OperatorFacts {
        OperatorFacts(
            oid: oid, left: left.map { types.facts($0) }, right: types.facts(right), result: types.facts(result),
            volatility: volatility)
    }
}

extension FunctionFacts.Volatility {
    init?(catalog letter: String?) {
        switch letter {
        case "i": self = .immutable
        case "s": self = .stable
        case "v": self = .volatile
        default: return nil
        }
    }
}

/// Functions, operators and types that were found by their names.
struct PolicyTypeRows {
    /// Oids of the types by the names with which policies refer to them.
    var named: [String: UInt32] = [:]
    var functions: [FunctionRow] = []
    var operators: [OperatorRow] = []

    var all: [UInt32] {
        var all = Set(named.values)
        for row in functions { all.formUnion(row.arguments + [row.result]) }
        for row in operators { all.formUnion([row.right, row.result] + (row.left.map { [$0] } ?? [])) }
        return all.sorted()
    }
}

extension CatalogReader {
    func types(
        named types: Set<String>, functions: Set<QualifiedName>, operators: Set<QualifiedName>
    ) throws(PostgresError) -> PolicyTypeRows {
        var rows = PolicyTypeRows()
        let written = types.sorted()
        // Each name is looked up separately, so that an invalid name does not affect the others.
        let answers = try ask(written.map { .kept("SELECT to_regtype($1::text)::oid", [$0]) })
        for (name, answer) in zip(written, answers) {
            if case .success(let found) = answer, let oid = found.first?.number(0) { rows.named[name] = oid }
        }
        if !functions.isEmpty { rows.functions = try self.functions(functions) }
        if !operators.isEmpty { rows.operators = try self.operators(operators) }
        return rows
    }

    private func functions(_ names: Set<QualifiedName>) throws(PostgresError) -> [FunctionRow] {
        let rows = try query(
            """
            SELECT f.oid, n.nspname, f.proname, f.proargtypes::text, f.prorettype, f.proretset, f.proisstrict,
                f.provolatile, l.lanname, f.prosecdef, f.proowner, pg_get_userbyid(f.proowner),
                f.oid >= 16384 AND l.lanname = 'sql' AND f.proargmodes IS NULL AND f.provariadic = 0
                    AND NOT EXISTS (SELECT FROM unnest(f.proconfig) c WHERE NOT starts_with(c, 'search_path=')),
                pg_get_function_sqlbody(f.oid), f.prosrc,
                (SELECT substr(c, length('search_path=') + 1) FROM unnest(f.proconfig) c LIMIT 1),
                (SELECT string_agg(format('NULL::%s AS %I', format_type(a.type, NULL), \(CatalogReader.argumentName)), ', '
                    ORDER BY a.place) FROM unnest(f.proargtypes) WITH ORDINALITY a(type, place)),
                (SELECT string_agg(\(CatalogReader.argumentName), E'\\x1f' ORDER BY a.place)
                 FROM unnest(f.proargtypes) WITH ORDINALITY a(type, place))
            FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace JOIN pg_language l ON l.oid = f.prolang
            WHERE f.prokind = 'f' AND (n.nspname, f.proname) IN (SELECT * FROM unnest($1::text[], $2::text[]))
            ORDER BY f.oid
            """, names.arrays)
        return rows.values.compactMap { FunctionRow($0) }
    }

    /// SQL for the name of argument `a` of function `f`, such as `$1` if it has none.
    private static let argumentName = "COALESCE(NULLIF(f.proargnames[a.place], ''), '$' || a.place)"

    private func operators(_ names: Set<QualifiedName>) throws(PostgresError) -> [OperatorRow] {
        let rows = try query(
            """
            SELECT o.oid, n.nspname, o.oprname, o.oprleft, o.oprright, o.oprresult, f.provolatile
            FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace JOIN pg_proc f ON f.oid = o.oprcode
            WHERE (n.nspname, o.oprname) IN (SELECT * FROM unnest($1::text[], $2::text[]))
            ORDER BY o.oid
            """, names.arrays)
        return rows.values.compactMap { OperatorRow($0) }
    }

    func relations(named names: Set<QualifiedName>) throws(PostgresError) -> Set<UInt32> {
        if names.isEmpty { return [] }
        let rows = try query(
            """
            SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN (SELECT * FROM unnest($1::text[], $2::text[]))
            """, names.arrays)
        return Set(rows.values.compactMap { $0.number(0) })
    }

    /// Returns the names of custom settings (with a dot) that databases and roles set for their sessions. TimeZone is
    /// not included, because the configuration file can set it too, which the catalog does not show.
    func presetSettings() throws(PostgresError) -> Set<String> {
        let rows = try query(
            """
            SELECT DISTINCT lower(split_part(setting, '=', 1))
            FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) setting
            WHERE s.setdatabase = 0 OR s.setdatabase = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            """)
        return Set(rows.values.compactMap { $0[0] }.filter { $0.contains(".") })
    }

    /// Returns the casts that run functions of users or extensions.
    func madeCasts() throws(PostgresError) -> Set<CastPair> {
        let rows = try query(
            "SELECT c.castsource, c.casttarget FROM pg_cast c WHERE c.oid >= 16384 AND c.castmethod = 'f'")
        return Set(
            rows.values.compactMap { row in
                row.number(0).flatMap { source in row.number(1).map { CastPair(from: source, to: $0) } }
            })
    }

    /// Returns the types for which a user has defined a cast from text by a function. Such a cast may differ from the
    /// type's own input function. Casts of extensions are trusted.
    func typesCastFromText() throws(PostgresError) -> Set<UInt32> {
        let rows = try query(
            """
            SELECT c.casttarget FROM pg_cast c
            WHERE c.castsource = 'text'::regtype AND c.castmethod = 'f' AND c.oid >= 16384 AND NOT EXISTS (
                SELECT FROM pg_depend d WHERE d.classid = 'pg_cast'::regclass AND d.objid = c.oid AND d.deptype = 'e')
            """)
        return Set(rows.values.compactMap { $0.number(0) })
    }

    /// Returns the types of extensions whose values are stored and written like text.
    func textTwins() throws(PostgresError) -> Set<UInt32> {
        let rows = try query(
            """
            SELECT t.oid FROM pg_type t JOIN pg_cast c ON c.castsource = t.oid AND c.casttarget = 'text'::regtype
            WHERE t.oid >= 16384 AND c.castmethod = 'b' AND t.typoutput = 'textout'::regproc
            """)
        return Set(rows.values.compactMap { $0.number(0) })
    }

    /// Returns the search paths that a client's session may have: those set for databases and roles, PostgreSQL's
    /// default, and the one of Supabase's PostgREST.
    func searchPaths() throws(PostgresError) -> [String] {
        let rows = try query(
            """
            SELECT DISTINCT substr(setting, length('search_path=') + 1)
            FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) setting LEFT JOIN pg_roles r ON r.oid = s.setrole
            WHERE starts_with(setting, 'search_path=')
                AND (s.setdatabase = 0 OR s.setdatabase = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
                AND (s.setrole = 0 OR NOT r.rolcanlogin AND NOT r.rolsuper)
            """)
        let paths = rows.values.compactMap { $0[0] }
        return Array(Set(paths + [#""$user", public"#, "public, extensions"])).sorted()
    }
}

extension Set<QualifiedName> {
    /// Arrays of the schemas and of the names, in the same order, as parameters of a query.
    var arrays: [String?] {
        let sorted = self.sorted { ($0.schema, $0.name) < ($1.schema, $1.name) }
        return [PostgresArray.literal(sorted.map(\.schema)), PostgresArray.literal(sorted.map(\.name))]
    }
}
