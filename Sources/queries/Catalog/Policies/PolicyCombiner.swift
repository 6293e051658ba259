import Change
import Policy
import Postgres

/// Combiner of a table's policies into one decision for a role. As in PostgreSQL, a row is visible if one permissive
/// policy and all restrictive policies allow it.
///
/// Input: a view with the role's rights to the table and to all tables that its policies read. Output: a
/// `PolicyBinding`.
struct PolicyCombiner {
    let snapshot: CatalogSnapshot
    let roles: RoleBook

    /// Returns the rights that must be known before a role's policies on a table can be combined: rights to the table
    /// and to the tables that its policies read.
    static func needs(_ key: AccessKey, _ snapshot: CatalogSnapshot) -> Set<AccessKey> {
        let book = snapshot.policies
        var needs: Set<AccessKey> = [key]
        var rest = [key]
        while let next = rest.popLast() {
            for policy in book.of(next.table) {
                // Policies may call a function in its owner's name, so the owner's rights matter too.
                for owner in book.definers(of: policy) { needs.insert(AccessKey(role: owner, table: key.table)) }
                policy.compiled.term.visit { term in
                    guard case .member(let membership, _) = term, snapshot.related(membership.table) != nil,
                        let reader = book.reader(membership.reader, caller: next.role)
                    else { return }
                    let key = AccessKey(role: reader, table: membership.table)
                    if needs.insert(key).inserted { rest.append(key) }
                    if membership.reader != .caller {
                        needs.insert(AccessKey(role: book.login, table: membership.table))
                    }
                }
            }
        }
        assert(needs.contains(key), "the table's own rights are needed first")
        return needs
    }

    /// Returns the combined policies; nil if row level security is not active for the role.
    func binding(_ role: String, _ table: CatalogTable) -> PolicyBinding? {
        guard let access = roles.access[AccessKey(role: role, table: table.oid)], access.rowSecurityIsActive else {
            return nil
        }
        let combination = combination(role, table, [])
        let policies = combination.policies
        precondition(
            policies.contains(where: \.isPermissive) || combination.term == .never,
            "without a permissive policy no row is anybody's")
        assert(policies.allSatisfy { access.policies.contains($0.oid) }, "only policies that apply to the role count")
        let isDenied = combination.refusal != nil
        let row = PolicyCombiner.row(policies, table)
        let changed = changed(row, table)
        return PolicyBinding(
            role: role, table: table.oid, rowPolicy: RowPolicy(isDenied ? .never : combination.term),
            parts: combination.parts, combinedSQL: changed == nil ? PolicyCombiner.sql(policies) : "false",
            row: row, version: snapshot.policies.version,
            warning: combination.refusal ?? PolicyCombiner.warning(role, table, policies) ?? changed,
            unknownPasts: unknownPasts(of: policies))
    }

    /// Returns the WAL positions at which the policies' memberships are unknown, for tables that the hub does not
    /// follow.
    private func unknownPasts(of policies: [CatalogPolicy]) -> [UnknownPast] {
        var tables: Set<UInt32> = []
        for policy in policies {
            policy.compiled.term.visit { if case .member(let membership, _) = $0 { tables.insert(membership.table) } }
        }
        return tables.filter { !snapshot.isFollowed($0) }.sorted().map { snapshot.unknownPasts.of($0) }
    }

    /// Returns a warning about a column whose value PostgreSQL would change when it casts the text to the column's
    /// type. Nil if there is no such column.
    private func changed(_ row: JudgedRow, _ table: CatalogTable) -> String? {
        let types = snapshot.policies.typesCastFromText
        let column = row.columns.first { $0.isNeeded && types.contains(table.columns[$0.slot].facts.type.oid) }
        return column.map {
            "Column \($0.name) of \(table.schema).\(table.name) is of a type with a cast from text that somebody made: "
                + "what only PostgreSQL can decide by policies will not be delivered"
        }
    }

    // MARK: Terms

    private struct Combination {
        var policies: [CatalogPolicy]
        var parts: [PolicyBinding.Part]
        var term: Term
        /// Reason why PostgreSQL would refuse every query of the role on the table; nil if there is none.
        var refusal: String?
    }

    /// Combines the role's policies on the table.
    ///
    /// - Parameter path: the tables whose policies have led to this table. If the table is among them, the policies are
    ///   circular; PostgreSQL decides them, and raises an error.
    private func combination(_ role: String, _ table: CatalogTable, _ path: [UInt32]) -> Combination {
        let applicable = roles.access[AccessKey(role: role, table: table.oid)]?.policies ?? []
        let policies = snapshot.policies.of(table.oid).filter { applicable.contains($0.oid) }
        let ordered = policies.filter(\.isPermissive) + policies.filter { !$0.isPermissive }
        var refusal: String?
        let isLeft = ordered.contains { mayBeRefused($0, role, table) }
        let parts = ordered.map { policy in
            let own = complete(policy, role, path + [table.oid], &refusal)
            let term = isLeft ? .undecided : own
            return PolicyBinding.Part(
                oid: policy.oid, name: policy.name, isPermissive: policy.isPermissive,
                classification: term == .undecided ? .fallback : policy.compiled.classification, text: policy.text,
                askedText: Self.asked(policy), term: term)
        }
        assert(parts.count == policies.count, "no policy is left out")
        return Combination(
            policies: ordered, parts: parts, term: PolicyCombiner.combined(parts), refusal: refusal)
    }

    /// True if PostgreSQL may refuse the whole query because of this policy, whatever other policies allow. PostgreSQL
    /// checks most rights before it reads rows, but not those of parts that its planner removes.
    private func mayBeRefused(_ policy: CatalogPolicy, _ role: String, _ table: CatalogTable) -> Bool {
        let access = roles.access[AccessKey(role: role, table: table.oid)]
        return access?.forbidding.contains(policy.oid) ?? false
            || !policy.functions.isDisjoint(with: roles.forbidden[role] ?? [])
    }

    private static func combined(_ parts: [PolicyBinding.Part]) -> Term {
        let permissive = parts.filter(\.isPermissive).map(\.term)
        guard !permissive.isEmpty else { return .never }
        let restrictive = parts.filter { !$0.isPermissive }.map(\.term)
        assert(permissive.count + restrictive.count == parts.count, "each policy is of one of the two kinds")
        let either = permissive.count == 1 ? permissive[0] : .any(permissive)
        return restrictive.isEmpty ? either : .all([either] + restrictive)
    }

    /// Returns the policy's term, completed with the policies of membership tables. If the hub cannot decide a part of
    /// the term, the whole term is undecided.
    private func complete(
        _ policy: CatalogPolicy, _ role: String, _ path: [UInt32], _ refusal: inout String?
    ) -> Term {
        // A forbidden call is an error only if PostgreSQL reaches it, so PostgreSQL must decide.
        guard mayCall(policy.functions, snapshot.policies.definers(of: policy)) else { return .undecided }
        var isDecided = true
        var found = refusal
        let term = policy.compiled.term.replacingMembers { membership, key in
            switch completed(membership, role, path) {
            case .membership(let membership): return .member(membership, key: key)
            case .failing(let membership) where membership.reader == .caller:
                found =
                    found ?? "role \(role) may not read what policy \"\(policy.name)\" reads: nothing is visible to it"
                return .never
            case .failing: return PolicyCombiner.failing
            case .undecided:
                isDecided = false
                return .undecided
            }
        }
        refusal = found
        return isDecided ? term : .undecided
    }

    /// True if each of the function owners may call all of the functions.
    private func mayCall(_ functions: Set<UInt32>, _ definers: Set<String>) -> Bool {
        definers.allSatisfy { roles.forbidden[$0].map(functions.isDisjoint) ?? false }
    }

    private enum Completion {
        case membership(Membership)
        case failing(Membership)
        case undecided
    }

    private func completed(_ membership: Membership, _ role: String, _ path: [UInt32]) -> Completion {
        guard !path.contains(membership.table), let table = snapshot.related(membership.table),
            let reader = snapshot.policies.reader(membership.reader, caller: role),
            let access = roles.access[AccessKey(role: reader, table: membership.table)]
        else { return .undecided }
        let used = membership.usedSlots
        // A membership that reads no column needs a right to any column of the table.
        let mayRead = used.isEmpty ? !access.readable.isEmpty : used.isSubset(of: access.readable)
        guard access.hasUsage else { return .undecided }
        guard mayRead else { return .failing(membership) }
        guard snapshot.isFollowed(membership.table), table.identifies(used),
            membership.reader == .caller || OwnReading(table, used, snapshot, roles).isPossible
        else { return .undecided }
        guard access.rowSecurityIsActive else { return .membership(membership) }
        return narrowed(membership, reader, table, path)
    }

    /// Returns the membership, limited to rows that the membership table's own policies show to the reader.
    private func narrowed(
        _ membership: Membership, _ reader: String, _ table: CatalogTable, _ path: [UInt32]
    ) -> Completion {
        let own = combination(reader, table, path)
        let isPlain = !own.term.contains { term in
            switch term {
            case .member, .undecided: true
            // In the name of a function's owner, the role and terms over claims may have other values.
            case .role, .ofClaims: membership.reader != .caller
            default: false
            }
        }
        guard isPlain, own.refusal == nil, table.identifies(own.term.slots) else { return .undecided }
        precondition(
            !own.term.contains { if case .member = $0 { true } else { false } },
            "a membership is narrowed by rows alone")
        var narrowed = membership
        narrowed.condition = .all([membership.condition, own.term])
        return .membership(narrowed)
    }

    /// Term that always fails, like a query without the right to read.
    private static let failing = Term.ofClaims(
        nil, AskedTerm(sql: "((1 / 0) = 0)", type: Term.boolean, isBuiltIn: true))

    // MARK: Texts

    /// Returns the policies as one SQL expression. A policy that reads data which changes lack counts as false. The
    /// order is the one in which PostgreSQL evaluates them, because one policy can prevent an error in the next: first
    /// the restrictive ones by name, then the permissive ones in reverse.
    static func sql(_ policies: [CatalogPolicy]) -> String {
        let permissive = policies.filter(\.isPermissive).map(asked)
        guard !permissive.isEmpty else { return "false" }
        let either = "(" + permissive.reversed().joined(separator: " OR ") + ")"
        let restrictive = policies.filter { !$0.isPermissive }.map(asked)
        return (restrictive + [either]).joined(separator: " AND ")
    }

    private static func asked(_ policy: CatalogPolicy) -> String {
        policy.looksBeyondRows == nil ? "(\(policy.text))" : "false"
    }

    private static func row(_ policies: [CatalogPolicy], _ table: CatalogTable) -> JudgedRow {
        let asked = policies.filter { $0.looksBeyondRows == nil }
        let isWhole = asked.contains(where: \.use.isWhole)
        let named = asked.reduce(into: Set<Int>()) { $0.formUnion($1.columns) }
        return JudgedRow(
            relation: table.name, schema: table.schema,
            columns: table.columns.enumerated().map { slot, column in
                JudgedRow.Column(
                    slot: slot, name: column.name, type: column.declaredType,
                    isNeeded: isWhole || named.contains(column.number))
            })
    }

    private static func warning(_ role: String, _ table: CatalogTable, _ policies: [CatalogPolicy]) -> String? {
        let name = "\(table.schema).\(table.name)"
        guard policies.contains(where: \.isPermissive) else {
            return "Row level security is active on \(name) and no policy lets role \(role) SELECT: "
                + "no changes will be delivered"
        }
        for policy in policies {
            guard let beyond = policy.looksBeyondRows else { continue }
            return "Policy \"\(policy.name)\" of \(name) reads \(beyond), which changes do not carry: "
                + "changes that depend on it will not be delivered"
        }
        guard let missing = table.columns.first(where: { !$0.isKnown }) else { return nil }
        for policy in policies where policy.use.isWhole {
            return "Policy \"\(policy.name)\" of \(name) reads whole rows, and changes do not carry column "
                + "\(missing.name): changes that depend on it will not be delivered"
        }
        let named = policies.reduce(into: Set<Int>()) { $0.formUnion($1.columns) }
        let read = table.columns.first { named.contains($0.number) && !$0.isKnown }
        return read.map {
            "A policy of \(name) reads column \($0.name), which changes do not carry: "
                + "changes that depend on it will not be delivered"
        }
    }
}

extension PolicyBook {
    /// Returns the role that reads a membership; nil if the owner of the function is unknown.
    public func reader(_ reader: Membership.Reader, caller: String) -> String? {
        switch reader {
        case .caller: caller
        case .definer(let owner): owners[owner]
        }
    }

    /// Returns the owners in whose names the policy's functions run, if that is not the caller's name.
    func definers(of policy: CatalogPolicy) -> Set<String> { Set(policy.functions.compactMap { definers[$0] }) }
}
