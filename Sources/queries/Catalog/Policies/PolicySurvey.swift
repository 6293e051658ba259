import Asking
import Diagnostics
import Policy
import Postgres

/// Collector of everything that policies refer to: functions and their bodies, the tables that these read, the policies
/// of those tables, and so on.
struct PolicySurvey {
    private(set) var catalog = PolicyCatalog()
    var book = PolicyBook()
    private let published: [UInt32: CatalogTable]
    private let compiling: PolicyCompiling
    /// Policies that the previous reading of the catalog found. Their objects are reused for unchanged tables.
    private let before: PolicyBook?
    /// Texts of policies and functions whose names have not been looked up yet.
    private var unread: [String] = []
    /// Names that have already been looked up in PostgreSQL's catalog.
    private var known = PolicyNames()
    /// Names in each text.
    private var names: [String: PolicyNames] = [:]
    private var searchPaths: [String] = []
    /// Oids of the policies that keep their previous text, because a lock prevents reading the present one.
    private(set) var kept: Set<UInt32> = []
    /// Settings that clients' sessions have and the hub's own sessions lack.
    private(set) var settings = ValueSettings.Differences()
    /// True if the hub has no right to ask PostgreSQL how it reads the texts of policies.
    private(set) var isForbidden = false

    init(
        _ tables: [CatalogTable], _ text: TextRules, _ compiling: PolicyCompiling, after before: PolicyBook?
    ) {
        self.before = before
        published = Dictionary(tables.map { ($0.oid, $0) }, uniquingKeysWith: { first, _ in first })
        self.compiling = compiling
        catalog.text = text
    }

    // MARK: Following

    mutating func readPolicies(of tables: Set<UInt32>, _ reader: CatalogReader) throws(PostgresError) {
        for policy in try reader.policies(of: tables) {
            var policy = policy
            // A policy that a lock makes unreadable keeps its previous text until the lock ends. Rows of the table wait
            // until then; joins do not.
            if policy.text.isEmpty, let former = before?.of(policy.table).first(where: { $0.oid == policy.oid }) {
                policy = former
                kept.insert(policy.oid)
            }
            book.policies[policy.table, default: []].append(policy)
            if !policy.text.isEmpty { unread.append(policy.text) }
        }
    }

    /// Looks up names until no text has a new one, or until the depth limit is reached. A policy with a name that was
    /// not looked up is not compiled.
    mutating func follow(_ reader: CatalogReader) throws(PostgresError) {
        for _ in 0..<Limits.maximumPolicyDepth {
            let new = takeNames()
            if new == PolicyNames() { return }
            try addTypes(reader.types(named: new.types, functions: new.functions, operators: new.operators), reader)
            try addRelations(new.relations, reader)
        }
    }

    private mutating func takeNames() -> PolicyNames {
        var new = PolicyNames()
        for text in unread {
            guard let found = compiling.names(text) else { continue }
            names[text] = found
            new.functions.formUnion(found.functions.subtracting(known.functions))
            new.operators.formUnion(found.operators.subtracting(known.operators))
            new.relations.formUnion(found.relations.subtracting(known.relations))
            new.types.formUnion(found.types.subtracting(known.types))
        }
        unread = []
        known.functions.formUnion(new.functions)
        known.operators.formUnion(new.operators)
        known.relations.formUnion(new.relations)
        known.types.formUnion(new.types)
        return new
    }

    private mutating func addTypes(_ rows: PolicyTypeRows, _ reader: CatalogReader) throws(PostgresError) {
        let types = try reader.types(and: rows.all)
        for (name, oid) in rows.named { catalog.types[name] = types.facts(oid) }
        for row in rows.operators { catalog.operators[row.name, default: []].append(row.facts(types)) }
        let bodies = try bodies(rows.functions, types, reader)
        for row in rows.functions {
            if row.isSecurityDefiner {
                book.owners[row.owner] = row.ownerName
                book.definers[row.oid] = row.ownerName
            }
            let body = bodies[row.oid]
            catalog.functions[row.name, default: []].append(row.facts(types, body: body))
            if let body { unread.append(body) }
        }
    }

    /// Returns the functions' bodies as PostgreSQL prints them, by oid. A body that PostgreSQL could read in several
    /// ways is omitted.
    private mutating func bodies(
        _ functions: [FunctionRow], _ types: TypeBook, _ reader: CatalogReader
    ) throws(PostgresError) -> [UInt32: String] {
        var trials: [UInt32: [ViewTrial]] = [:]
        for function in functions { trials[function.oid] = function.body?.trials(function, searchPaths) }
        let outcomes = try reader.bench.outcomes(Array(trials.values.joined()), reader)
        var bodies: [UInt32: String] = [:]
        for function in functions {
            let found = (trials[function.oid] ?? []).map { outcomes[$0] ?? .refused }
            if found.contains(.busy) { book.unsettledFunctions.insert(function.oid) }
            if found.contains(.forbidden) { isForbidden = true }
            let texts = Set(found.filter { $0 != .refused })
            let expected = function.returnsSet ? types.array(of: function.result) : function.result
            guard texts.count == 1, case .written(let text, let type)? = texts.first, type == expected else { continue }
            let canonical = FunctionBody.canonical(text)
            // PostgreSQL parses such a body again at every call. A literal time may then mean another moment.
            guard function.body?.isResolved == true || !readsMoments(canonical) else { continue }
            bodies[function.oid] = canonical
        }
        return bodies
    }

    /// True if the body has literals whose values depend on the time zone or on other settings of clients' sessions.
    private func readsMoments(_ body: String) -> Bool {
        let words =
            settings.followed.isEmpty ? ["::timestamp with time zone"] : ["::date", "::time", "::interval", "::ts"]
        return words.contains { body.contains($0) }
    }

    private mutating func addRelations(
        _ new: Set<QualifiedName>, _ reader: CatalogReader
    ) throws(PostgresError) {
        let oids = try reader.relations(named: new)
        let unpublished = oids.subtracting(published.keys)
        for table in try reader.tables(reader.heads(unpublished), reusing: { before?.tables[$0] }) {
            book.tables[table.oid] = table
        }
        for oid in oids {
            if let table = table(oid) { catalog.relations[QualifiedName(table.schema, table.name)] = table.relation }
        }
        let unsurveyed = oids.filter { book.policies[$0] == nil && table($0)?.hasPolicies == true }
        try readPolicies(of: unsurveyed, reader)
    }

    // MARK: Results

    private func table(_ oid: UInt32) -> CatalogTable? { published[oid] ?? book.tables[oid] }

    func relation(_ oid: UInt32) -> RelationFacts? { table(oid)?.relation }

    /// Returns all functions that the text may call, directly or through other functions. A name stands for all
    /// functions that have it.
    func functions(of text: String) -> Set<UInt32> { closure(of: text).functions }

    /// Returns all tables that the text may read, directly, through functions, or through policies of tables.
    func tables(of text: String) -> Set<UInt32> { closure(of: text, withPolicies: true).tables }

    private func closure(
        of text: String, withPolicies: Bool = false
    ) -> (functions: Set<UInt32>, tables: Set<UInt32>) {
        var (functions, tables): (Set<UInt32>, Set<UInt32>) = ([], [])
        var rest = [text]
        while let text = rest.popLast() {
            for name in names[text]?.functions ?? [] {
                for function in catalog.functions[name] ?? [] where functions.insert(function.oid).inserted {
                    if let body = function.canonicalBody { rest.append(body) }
                }
            }
            for name in names[text]?.relations ?? [] {
                guard let oid = catalog.relations[name]?.oid, tables.insert(oid).inserted, withPolicies else {
                    continue
                }
                rest += (book.policies[oid] ?? []).map(\.text)
            }
        }
        return (functions, tables)
    }

    // MARK: Settings

    mutating func readSettings(_ reader: CatalogReader) throws(PostgresError) {
        settings = ValueSettings.Differences(try reader.query(ValueSettings.question).values)
        catalog.presetSettings = try reader.presetSettings()
        catalog.textTwins = try reader.textTwins()
        catalog.madeCasts = try reader.madeCasts()
        book.typesCastFromText = try reader.typesCastFromText()
        searchPaths = try reader.searchPaths()
        book.login = try reader.query("SELECT session_user").first?.first.flatMap(\.self) ?? ""
    }
}

extension PolicySurvey {
    /// True if the term has the same value under the settings of clients' sessions. Some settings change how PostgreSQL
    /// writes values as texts, and the hub compares such texts.
    func holds(_ term: Term) -> Bool {
        guard settings.refused.isEmpty else { return false }
        guard !settings.followed.isEmpty else { return true }
        return !term.contains { part in
            switch part {
            case .ofClaims(_, let asked): return !asked.type.hasOneText
            case .member(let membership, _):
                let key = membership.keySlot.flatMap { relation(membership.table)?.columns[$0].type }
                return key.map { !$0.hasOneText } ?? false || !holds(membership.condition)
            default: return false
            }
        }
    }
}

extension TypeFacts {
    /// True if PostgreSQL writes the type's values in the same way under all settings.
    fileprivate var hasOneText: Bool {
        switch shape {
        case .array(let element): element.hasOneText
        case .enumeration: true
        case .base: TypeFacts.withOneText.contains(oid)
        case .other: false
        }
    }

    /// Oids of built-in types whose texts depend on no setting. Dates, times, intervals, floats and `bytea` are
    /// excluded.
    private static let withOneText: Set<UInt32> = [
        16, 18, 19, 20, 21, 23, 25, 26, 114, 650, 774, 829, 869, 1042, 1043, 1083, 1266, 1560, 1562, 1700, 2950, 3802,
    ]
}

extension CatalogTable {
    /// Facts about the table for the policy compiler.
    var relation: RelationFacts {
        RelationFacts(
            oid: oid, name: QualifiedName(schema, name), columns: facts,
            carried: Set(columns.indices.filter { columns[$0].isPublished }), canBeFollowed: isOrdinary)
    }
}
