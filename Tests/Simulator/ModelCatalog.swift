import Catalog
import Change
import Judging
import Policy
import Synchronization

/// Catalog as read from a slow server: it is read at intervals, and shows the state at the time of the reading.
final class ModelCatalog: CatalogSource, @unchecked Sendable {
    // Only the simulation's single thread touches these properties.
    private let world: ModelServer
    private var view: CatalogView?
    private var tables: [ModelTable: (extras: Int, isNamedByKey: Bool, table: CatalogTable)] = [:]
    private var rulesRead: ModelRules?
    private var seen: VisibleTransactions?
    private var readAt: UInt64 = 0
    private var isReading = false
    private var isWanted = false
    private var listeners: [@Sendable (CatalogSnapshot) -> Void] = []
    private var waiting: [(since: UInt64, xid: UInt32?, tries: Int, then: @Sendable (CatalogSnapshot?) -> Void)] = []
    private var version: UInt64 = 0
    private var isStopped = false

    /// Duration in nanoseconds for which a snapshot counts as current without a confirmation from the database.
    private static let holdsFor: UInt64 = 3_000_000_000
    private static let pollMilliseconds: UInt64 = 250

    let unannounced: Set<UInt32>
    init(_ world: ModelServer, unannounced: Set<UInt32>) {
        self.world = world
        self.unannounced = unannounced
        poll()
    }

    private func poll() {
        guard !isStopped else { return }
        read()
        world.agenda.after(milliseconds: Self.pollMilliseconds) { [weak self] in self?.poll() }
    }

    /// Reads the state that is visible at the server now. The answer arrives later.
    private func read() {
        guard !isReading else { return isWanted = true }
        isReading = true
        isWanted = false
        let began = world.time.monotonicNanoseconds()
        world.agenda.after(milliseconds: world.delay(.catalog)) { [weak self] in
            guard let self else { return }
            let snapshot = world.database.snapshot(at: world.time.monotonicNanoseconds())
            let isLost = world.isAway
            world.agenda.after(milliseconds: world.delay(.catalog)) { [weak self] in
                guard let self, !isStopped else { return }
                isReading = false
                if isLost { fail() } else { take(snapshot.text, snapshot.last, began) }
                if isWanted { read() }
            }
        }
    }

    private func fail() {
        let failed = waiting
        waiting = []
        for question in failed { question.then(nil) }
    }

    private func take(_ text: String, _ last: ModelCommit?, _ began: UInt64) {
        seen = VisibleTransactions(text)
        readAt = began
        let rules = last?.rules ?? ModelRules()
        if rules != rulesRead || view == nil { publish(rules) }
        answer(began)
    }

    private func publish(_ rules: ModelRules) {
        version += 1
        let policiesAreOthers = rules.sharesRoomZero != rulesRead?.sharesRoomZero || view == nil
        rulesRead = rules
        let all = ModelTable.ofRows.map { table($0, rules) }
        let relations = all.filter { $0.oid != ModelTable.members.rawValue }
        let compiler = ModelPolicies(all)
        let book = PolicyBook(
            policies: compiler.policies(rules), tables: all.filter { $0.oid == ModelTable.members.rawValue },
            version: policiesAreOthers ? version : view?.snapshot.policies.version ?? version)
        let snapshot = CatalogSnapshot(
            version: version, publication: "supabase_realtime", tables: relations, text: .plainUTF8,
            policies: book, followable: [ModelTable.members.rawValue: ModelDatabase.firstLSN])
        var roles = RoleBook()
        roles.existing = ["authenticated"]
        for table in all {
            roles.access[AccessKey(role: "authenticated", table: table.oid)] = TableAccess(
                selectable: Array(table.columns.indices),
                rowSecurityIsActive: table.hasRowSecurity, readable: Set(table.columns.indices),
                policies: Set(book.policies[table.oid, default: []].map(\.oid)))
        }
        view = CatalogView(snapshot, roles, after: view)
        for listener in listeners { listener(snapshot) }
    }

    private func answer(_ began: UInt64) {
        let (due, others) = waiting.reduce(into: ([], []) as (due: [Int], others: [Int])) { split, question in
            let shows = question.xid.map { seen?.contains($0) ?? false } ?? true
            if began >= question.since, shows {
                split.due.append(split.due.count + split.others.count)
            } else {
                split.others.append(split.due.count + split.others.count)
            }
        }
        let questions = waiting
        waiting = others.map { questions[$0] }
        for place in due { questions[place].then(view?.snapshot) }
        for place in waiting.indices.reversed() where waiting[place].since <= began {
            waiting[place].tries += 1
            // The transaction never becomes visible: a server that was restored to an earlier state may have lost it.
            if waiting[place].tries > 20 { waiting.remove(at: place).then(nil) }
        }
        if !waiting.isEmpty {
            world.agenda.after(milliseconds: 5) { [weak self] in self?.read() }
        }
    }

    private func table(_ table: ModelTable, _ rules: ModelRules) -> CatalogTable {
        let (extras, isNamedByKey) = (rules.extras(of: table), rules.isNamedByKey(table))
        if let known = tables[table], known.extras == extras, known.isNamedByKey == isNamedByKey { return known.table }
        let made = CatalogTable(
            oid: table.rawValue, schema: "public", name: table.name, columns: ModelPolicies.columns(extras),
            primaryKey: [0], identity: isNamedByKey ? .primaryKey : .full,
            hasRowSecurity: table != .plain && table != .members, forcesRowSecurity: false,
            hasPolicies: table != .plain && table != .members, operations: .all)
        tables[table] = (extras, isNamedByKey, made)
        return made
    }

    // MARK: Questions

    var snapshot: CatalogSnapshot? {
        hurrySometimes()
        return view?.snapshot
    }

    /// Sometimes runs the agenda's next action early, because other threads do not wait for the end of a loop's turn.
    private func hurrySometimes() {
        if world.chance(.catalog, percent: 3) { world.agenda.hurry() }
    }

    var isCurrent: Bool { view != nil && world.time.monotonicNanoseconds() - readAt < Self.holdsFor }

    func hasSeen(_ xid: UInt32) -> Bool {
        hurrySometimes()
        return seen?.contains(xid) ?? false
    }

    func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void) { listeners.append(body) }

    /// The model server has no prepared plans, and never refuses a question because a name has changed.
    func watchDefinitions() -> @Sendable () -> Bool { { true } }
    func addBindings(_ count: Int) {}

    func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of loops: Int) {}

    func refresh(seeing xid: UInt32?, then: @escaping @Sendable (CatalogSnapshot?) -> Void) {
        waiting.append((world.time.monotonicNanoseconds(), xid, 0, then))
        read()
    }

    func resolved(_ request: BindingRequest) -> BindingOutcome? {
        guard isCurrent, !world.chance(.catalog, percent: 40), let outcome = outcome(request),
            case .tables = outcome
        else { return nil }
        return outcome
    }

    private func outcome(_ request: BindingRequest) -> BindingOutcome? { view?.outcome(of: request) { $0.text } }

    func resolve(
        _ requests: [BindingRequest], then: @escaping @Sendable ([BindingOutcome], UInt64) -> Void
    ) {
        world.agenda.after(milliseconds: world.delay(.catalog)) { [weak self] in
            guard let self, !isStopped, isCurrent, let view, !world.isAway else {
                return then(requests.map { _ in .unavailable }, 0)
            }
            then(requests.map { self.outcome($0) ?? .unavailable }, view.snapshot.version)
        }
    }

    func stop() {
        isStopped = true
        fail()
    }
}

/// Policies of the model's tables in PostgreSQL's spelling, compiled by the hub's compiler.
struct ModelPolicies {
    private static let integer = TypeFacts(oid: 23, name: "integer")
    private static let text = TypeFacts(oid: 25, name: "text")
    private static let json = TypeFacts(oid: 114, name: "json")
    private static let boolean = TypeFacts(oid: 16, name: "boolean")

    private let compiler: PolicyCompiler
    private let facts: [UInt32: RelationFacts]

    static func columns(_ extras: Int) -> [CatalogColumn] {
        let named =
            [("id", integer), ("owner", text), ("room", integer), ("body", text), ("version", integer)]
            + (0..<extras).map { ("extra\($0)", text) }
        return named.enumerated().map { place, column in
            let (name, type) = column
            let collation: Collation = type.oid == 25 ? .deterministic(name: nil) : .none
            return CatalogColumn(
                facts: ColumnFacts(name: name, type: type, collation: collation), number: place + 1,
                typeOID: type.oid, typeName: type.oid == 25 ? "text" : "int4", declaredType: type.name,
                rendering: .scalar(oid: type.oid))
        }
    }

    init(_ tables: [CatalogTable]) {
        var catalog = PolicyCatalog()
        catalog.text = .plainUTF8
        catalog.timeZone = "UTC"
        for type in [Self.integer, Self.text, Self.json, Self.boolean] { catalog.types[type.name] = type }
        catalog.functions[QualifiedName("pg_catalog", "current_setting")] = [
            FunctionFacts(
                oid: 3294, arguments: [Self.text, Self.boolean], result: Self.text, returnsSet: false, isStrict: true,
                volatility: .stable, language: "internal", isSecurityDefiner: false, owner: 10, canonicalBody: nil)
        ]
        catalog.operators[QualifiedName("pg_catalog", "=")] = [
            OperatorFacts(oid: 98, left: Self.text, right: Self.text, result: Self.boolean, volatility: .immutable),
            OperatorFacts(
                oid: 96, left: Self.integer, right: Self.integer, result: Self.boolean, volatility: .immutable),
        ]
        catalog.operators[QualifiedName("pg_catalog", "->>")] = [
            OperatorFacts(oid: 3963, left: Self.json, right: Self.text, result: Self.text, volatility: .immutable)
        ]
        var facts: [UInt32: RelationFacts] = [:]
        for table in tables {
            let relation = RelationFacts(
                oid: table.oid, name: QualifiedName(table.schema, table.name), columns: table.facts,
                carried: Set(table.columns.indices), canBeFollowed: true)
            facts[table.oid] = relation
            catalog.relations[relation.name] = relation
        }
        self.facts = facts
        compiler = PolicyCompiler(catalog)
    }

    private static let subject =
        "((current_setting('request.jwt.claims'::text, true))::json ->> 'sub'::text)"

    func policies(_ rules: ModelRules) -> [UInt32: [CatalogPolicy]] {
        let owned = "(owner = \(Self.subject))"
        let texts: [(ModelTable, String)] = [
            (.notes, rules.sharesRoomZero ? "(\(owned) OR (room = 0))" : owned),
            (.items, "(room IN ( SELECT m.room\n   FROM public.members m\n  WHERE (m.owner = \(Self.subject))))"),
            (.judged, "private.decides(owner, version)"),
        ]
        return texts.enumerated().reduce(into: [:]) { policies, item in
            let (number, (table, text)) = item
            guard let facts = facts[table.rawValue] else { preconditionFailure("\(table) is no table") }
            let compiled = compiler.compile(text, on: facts)
            let wanted: CompiledPolicy.Classification =
                switch table {
                case .items: .membership
                case .judged: .fallback
                default: .compiled
                }
            precondition(compiled.classification == wanted, "\(table) is decided as \(compiled.classification)")
            policies[table.rawValue] = [
                CatalogPolicy(
                    oid: 30_000 + UInt32(number), table: table.rawValue, name: "\(table) rows", text: text,
                    columns: [2, 3, 5], use: RowUse(of: text), compiled: compiled)
            ]
        }
    }
}
