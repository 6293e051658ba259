import Diagnostics
import Policy
import Postgres

/// Check if the hub's own login can read all rows of a table that a SECURITY DEFINER function reads in its owner's
/// name.
///
/// If the login cannot, PostgreSQL decides on each row, which is slower. The hub then logs the SQL that permits the
/// reading.
struct OwnReading {
    private let table: CatalogTable
    let login: String
    /// Slots of the columns that the hub must read.
    private let wanted: Set<Int>
    private let access: TableAccess?
    /// Policies of the table that PostgreSQL would apply to the hub's login.
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

    /// True if the login may read the wanted columns. If there are none, a right to any column is sufficient.
    private var hasColumns: Bool {
        guard let access else { return false }
        return wanted.isEmpty ? !access.readable.isEmpty : wanted.isSubset(of: access.readable)
    }

    /// True if the login sees all rows of the table. Any policy other than `true` prevents that, because it could run
    /// users' code as the hub's login.
    private var seesAllRows: Bool {
        guard let access else { return false }
        guard access.rowSecurityIsActive else { return true }
        // The hub locks the table before it reads, which needs a right to all columns.
        let mayReadAll = access.readable.count == table.columns.count
        return mayReadAll && !policies.isEmpty && policies.allSatisfy(\.isOpen)
    }

    // MARK: Hints for operators

    /// SQL with which the table's owner lets the hub's login read all rows; nil if nothing is missing.
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
    /// Slots of the membership table's columns that the hub must read.
    var usedSlots: Set<Int> {
        let key: Set<Int> = keySlot.map { [$0] } ?? []
        return condition.slots.union(key)
    }
}

extension CatalogView {
    /// Returns the check for each table that functions read in their owners' names. Tables to which the hub's rights
    /// are unknown are omitted.
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
    /// True if the policy shows every row and calls no function.
    var isOpen: Bool { isPermissive && text == "true" }
}
