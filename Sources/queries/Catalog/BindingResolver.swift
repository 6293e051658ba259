import Diagnostics
import Policy
import Postgres
import Protocol

/// State of the database as the hub knows it: a catalog snapshot and the rights of roles to its tables. All parts are
/// values, so any thread may keep a copy and use it.
public struct CatalogView: Sendable {
    public internal(set) var snapshot: CatalogSnapshot
    public var roles: RoleBook
    /// Combined policies for each role and table. Only tables whose row level security is active for the role have an
    /// entry.
    var policies: [AccessKey: PolicyBinding] = [:]

    /// Combines the policies of each known role and table. Reuses the `PolicyBinding` of the view `before` if it is
    /// equal.
    mutating func combinePolicies(after before: CatalogView?) {
        let combiner = PolicyCombiner(snapshot: snapshot, roles: roles)
        policies = [:]
        for key in roles.access.keys {
            guard let table = snapshot.table(key.table), let binding = combiner.binding(key.role, table) else {
                continue
            }
            precondition(
                binding.role == key.role && binding.table == key.table, "policies are those of the role on the table")
            let known = before?.policies[key]
            policies[key] = known == binding ? known : binding
        }
    }

    /// True if anything in the view differs from the view before.
    func differs(from before: CatalogView?) -> Bool {
        judgesOtherwise(than: before) || snapshot.privilegedRoles != before?.snapshot.privilegedRoles
    }

    /// True if the view may decide differently about a client that has already joined. Changes of privileged roles do
    /// not count, because they matter only when a client joins. Those roles belong to the whole server and often change
    /// for reasons outside this database.
    func judgesOtherwise(than before: CatalogView?) -> Bool {
        guard let before else { return true }
        return snapshot.tables != before.snapshot.tables || roles != before.roles
            || snapshot.publishedAs != before.snapshot.publishedAs
            || snapshot.text != before.snapshot.text
            || snapshot.policies != before.snapshot.policies || snapshot.followable != before.snapshot.followable
            || snapshot.unknownPasts != before.snapshot.unknownPasts
            || snapshot.messageRules != before.snapshot.messageRules
    }
}

extension CatalogView {
    public init(_ snapshot: CatalogSnapshot, _ roles: RoleBook, after before: CatalogView? = nil) {
        self.init(snapshot: snapshot, roles: roles)
        combinePolicies(after: before)
    }

    /// Returns the outcome of a request; nil if the role's rights must be queried first. `canonical` converts a literal
    /// of the filter to the text that PostgreSQL writes for a value of its type.
    public func outcome(of request: BindingRequest, canonical: (Literal) -> String) -> BindingOutcome? {
        switch BindingResolver(view: self).step(request) {
        case .final(let outcome), .outcome(let outcome): outcome
        case .needsAccess: nil
        case .drafts(let drafts):
            BindingDraft.outcome(drafts, drafts.map { $0.literals.map { .success(canonical($0)) } })
        }
    }
}

/// Resolver that decides on a binding request from a catalog view, without asking PostgreSQL.
///
/// Input: a request and a view. Output: the outcome, or the facts that the caller must query first.
struct BindingResolver {
    let view: CatalogView

    enum Step {
        /// An outcome that stays the same however the catalog changes.
        case final(BindingOutcome)
        case outcome(BindingOutcome)
        /// The hub does not know the role's rights to these tables, or does not know if the role exists.
        case needsAccess(Set<AccessKey>, Filter?)
        /// The tables exist and the filter fits them. The filter's literals must still be converted to PostgreSQL's
        /// texts.
        case drafts([BindingDraft])
    }

    func step(_ request: BindingRequest) -> Step {
        let filter: Filter?
        do throws(FilterError) {
            filter = try request.filter.flatMap { text throws(FilterError) in
                try Filter.parse(text, within: BindingResolver.bounds)
            }
        } catch {
            return .final(.failed(ClientText(.invalidFilter, error.message)))
        }
        if request.select != nil, NamePattern.isPattern(request.schema) || NamePattern.isPattern(request.table) {
            return .final(.failed(BindingMessages.selectOnPattern))
        }
        return step(request, filter)
    }

    static let bounds = Filter.Bounds(
        bytes: Limits.maximumFilterBytes, conditions: Limits.maximumFilterConditions,
        depth: Limits.maximumFilterDepth)

    private func step(_ request: BindingRequest, _ filter: Filter?) -> Step {
        let tables = view.snapshot.tables(schema: request.schema, table: request.table)
        if tables.isEmpty {
            let other = view.snapshot.publishedAs[QualifiedName(request.schema, request.table)]
            return .outcome(
                .failed(BindingMessages.nothingMatches(request, filter, other, view.snapshot.publication)))
        }
        guard tables.count <= Limits.maximumTablesPerBinding else {
            return .outcome(.failed(BindingMessages.tooManyTables(tables.count, request, filter)))
        }
        let needed = tables.reduce(into: Set<AccessKey>()) { needed, table in
            needed.formUnion(
                PolicyCombiner.needs(AccessKey(role: request.role, table: table.oid), view.snapshot))
        }
        guard view.roles.existing.contains(request.role) else { return .needsAccess(needed, filter) }
        assert(
            needed.isSuperset(of: tables.map { AccessKey(role: request.role, table: $0.oid) }),
            "rights to each table count")
        let unknown = needed.filter { view.roles.access[$0] == nil }
        guard unknown.isEmpty else { return .needsAccess(unknown, filter) }
        do throws(FilterRefusal) {
            return .drafts(try tables.map { table throws(FilterRefusal) in try draft(request, filter, table) })
        } catch {
            return .outcome(.failed(BindingMessages.refusal(error, request, filter)))
        }
    }

    private func draft(
        _ request: BindingRequest, _ filter: Filter?, _ table: CatalogTable
    ) throws(FilterRefusal) -> BindingDraft {
        guard let access = view.roles.access[AccessKey(role: request.role, table: table.oid)] else {
            preconditionFailure("a table is drafted with the role's access known")
        }
        let check = try filter.map { filter throws(FilterRefusal) in
            try FilterCheck(
                filter, columns: table.facts,
                settings: FilterCheck.Settings(
                    maximumListElements: Limits.maximumFilterListElements,
                    maximumKeys: Limits.maximumFilterKeys, maximumWork: Limits.maximumFilterWork,
                    hiddenSlots: access.hidden,
                    text: view.snapshot.text))
        }
        for slot in check?.slots ?? [] { try mustBeKnown(slot, table) }
        let policy = policy(request.role, table, access)
        if let check, request.operations.contains(.update) { try mustBeRecallable(check, policy, table) }
        return BindingDraft(
            request: request, filter: filter, table: table, check: check,
            delivered: try delivered(request.select, table, access),
            access: BindingResolver.access(table, access), policy: policy)
    }

    /// Throws a refusal if the filter reads the row before the change, and neither updates nor the event log contain
    /// it. The filter could then not be decided for any update.
    private func mustBeRecallable(
        _ check: FilterCheck, _ policy: PolicyBinding?, _ table: CatalogTable
    ) throws(FilterRefusal) {
        let read = TableBinding.oldSlots(check.oldSlots, policy, of: table)
        if !read.isEmpty, !table.identifies(read), !table.isRecallable {
            throw BindingMessages.oldRowsAreUnknown(table)
        }
    }

    private func policy(_ role: String, _ table: CatalogTable, _ access: TableAccess) -> PolicyBinding? {
        let known = view.policies[AccessKey(role: role, table: table.oid)]
        precondition(
            known.map { $0.role == role && $0.table == table.oid } ?? true, "a role is judged by its own policies")
        precondition(known != nil || !access.rowSecurityIsActive, "what row security says is known with the rights")
        return known
    }

    /// Throws a refusal if changes never contain the column in this slot. Otherwise the client would wait for it in
    /// vain.
    private func mustBeKnown(_ slot: Int, _ table: CatalogTable) throws(FilterRefusal) {
        let column = table.columns[slot]
        if !column.isKnown { throw BindingMessages.isLeftOut(column, of: table, view.snapshot.publication) }
    }

    private func delivered(
        _ select: [String]?, _ table: CatalogTable, _ access: TableAccess
    ) throws(FilterRefusal) -> [Int] {
        guard let select else { return access.selectable }
        var wanted = Set(table.primaryKey)
        for name in select {
            guard let slot = table.slot(named: name), access.selectable.contains(slot) else {
                throw FilterRefusal(
                    sqlState: "P0001", condition: "raise_exception", message: "invalid column for select \(name)")
            }
            try mustBeKnown(slot, table)
            wanted.insert(slot)
        }
        let delivered = access.selectable.filter(wanted.contains)
        assert(access.hidden.isDisjoint(with: delivered), "nothing is delivered that the role may not read")
        return delivered
    }

    private static func access(_ table: CatalogTable, _ access: TableAccess) -> TableBinding.Access {
        if table.primaryKey.isEmpty { return .noPrimaryKey }
        return table.primaryKey.allSatisfy(access.selectable.contains) ? .readable : .unauthorized
    }
}

/// Binding on one table whose filter literals have not been converted to PostgreSQL's texts yet.
struct BindingDraft {
    var request: BindingRequest
    var filter: Filter?
    var table: CatalogTable
    var check: FilterCheck?
    var delivered: [Int]
    var access: TableBinding.Access
    var policy: PolicyBinding?

    var literals: [Literal] { check?.literals ?? [] }

    /// Refusal of a literal for which PostgreSQL returned no text.
    static let unanswered = FilterRefusal(
        sqlState: "XX000", condition: SQLCondition.name(of: "XX000"), message: "the value could not be read")

    /// Creates the binding after the literals of its filter have been converted to PostgreSQL's texts.
    ///
    /// - Parameter canonical: PostgreSQL's text for each literal, in order.
    func binding(_ canonical: [String]) throws(FilterRefusal) -> TableBinding {
        precondition(canonical.count == literals.count, "each value of a filter has its own text")
        precondition(policy.map { $0.table == table.oid } ?? true, "rows are judged by their own table's policies")
        precondition(delivered.allSatisfy(table.columns.indices.contains), "what is delivered is of the table")
        return TableBinding(
            table: table,
            predicate: try check.map { check throws(FilterRefusal) in try Predicate(check, canonical: canonical) },
            delivered: delivered, operations: request.operations.intersection(table.operations),
            unpublished: request.operations.subtracting(table.operations), access: access,
            policy: policy)
    }

    /// Returns the outcome of a request from the drafts of all its tables and the converted literals of each. If one
    /// literal or table fails, the whole request fails.
    static func outcome(
        _ drafts: [BindingDraft], _ answers: [[Result<String, FilterRefusal>]]
    ) -> BindingOutcome {
        guard drafts.count == answers.count, zip(drafts, answers).allSatisfy({ $0.literals.count == $1.count }) else {
            // With a table missing or with another table's value, the bindings would not be what the client asked for.
            Impossible.happened("each value of each table was asked about", in: .catalog)
            return .unavailable
        }
        var bindings: [TableBinding] = []
        for (draft, answers) in zip(drafts, answers) {
            do throws(FilterRefusal) {
                bindings.append(
                    try draft.binding(try answers.map { answer throws(FilterRefusal) in try answer.get() }))
            } catch {
                return .failed(BindingMessages.refusal(error, draft.request, draft.filter))
            }
        }
        assert(bindings.count == drafts.count, "one that fails fails all")
        return .tables(bindings)
    }
}
