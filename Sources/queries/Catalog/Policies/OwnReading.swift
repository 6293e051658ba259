import Diagnostics
import Policy
import Postgres

/// Whether the hub's own login can read from a table what a function's owner reads there: all of its rows, in these columns.
///
/// What it cannot read is left to PostgreSQL, which is slower, and an operator is told the SQL that changes that.
struct OwnReading {
    private let table: CatalogTable
    let login: String
    /// Columns it would need.
    private let wanted: Set<Int>
    private let access: TableAccess?
    /// Those of the table's policies that PostgreSQL would apply to it.
    private let policies: [CatalogPolicy]

    init(_ table: CatalogTable, _ wanted: Set<Int>, _ snapshot: CatalogSnapshot, _ roles: RoleBook) {
        self.table = table
        self.wanted = wanted
        login = snapshot.policies.login
        access = roles.access[AccessKey(role: login, table: table.oid)]
        let applicable = access?.policies ?? []
        policies = snapshot.policies.of(table.oid).filter { applicable.contains($0.oid) }
    }

    var name: String { "\(table.schema).\(table.name)" }

    var isPossible: Bool { hasSchema && hasColumns && seesAllRows }

    private var hasSchema: Bool { access?.hasUsage ?? false }

    /// Without a column any will do.
    private var hasColumns: Bool {
        guard let access else { return false }
        return wanted.isEmpty ? !access.readable.isEmpty : wanted.isSubset(of: access.readable)
    }

    /// A policy that says anything but yes would run here in the hub's own name, and nothing that people write may.
    private var seesAllRows: Bool {
        guard let access else { return false }
        guard access.rowSecurityIsActive else { return true }
        // The table is locked for that moment, which takes a right to all of it.
        let mayReadAll = access.readable.count == table.columns.count
        return mayReadAll && !policies.isEmpty && policies.allSatisfy(\.isOpen)
    }

    // MARK: What would make it possible

    /// To be run by the table's owner; nil where nothing is missing.
    var hint: String? {
        if isPossible { return nil }
        let login = Quoted.identifier(self.login)
        let name = Quoted.identifier(table.schema) + "." + Quoted.identifier(table.name)
        var steps: [String] = []
        if !hasSchema { steps.append("GRANT USAGE ON SCHEMA \(Quoted.identifier(table.schema)) TO \(login);") }
        if !hasColumns { steps.append("GRANT SELECT ON \(name) TO \(login);") }
        if !seesAllRows {
            let closed = policies.filter { !$0.isOpen }.map {
                "ALTER POLICY \(Quoted.identifier($0.name)) ON \(name) TO anon, authenticated;"
            }
            steps += closed
            if !policies.contains(where: \.isOpen) {
                steps.append("CREATE POLICY tidewire ON \(name) FOR SELECT TO \(login) USING (true);")
            }
        }
        return steps.joined(separator: " ")
    }
}

extension Membership {
    /// The columns of its table that have to be read.
    var usedSlots: Set<Int> {
        let key: Set<Int> = keySlot.map { [$0] } ?? []
        return condition.slots.union(key)
    }
}

extension CatalogView {
    /// For each table that functions read in their owners' names, as far as the hub's rights to it are known.
    func ownReadings() -> [OwnReading] {
        var wanted: [UInt32: Set<Int>] = [:]
        for policy in snapshot.policies.policies.values.joined() {
            policy.compiled.term.visit { term in
                guard case .member(let membership, _) = term, membership.reader != .caller else { return }
                wanted[membership.table, default: []].formUnion(membership.usedSlots)
            }
        }
        return wanted.compactMap { oid, slots in
            let isKnown = roles.access[AccessKey(role: snapshot.policies.login, table: oid)] != nil
            guard isKnown, snapshot.isFollowed(oid), let table = snapshot.related(oid) else { return nil }
            return OwnReading(table, slots, snapshot, roles)
        }
    }
}

extension CatalogPolicy {
    /// It shows every row, and calls nothing to say so.
    var isOpen: Bool { isPermissive && text == "true" }
}
