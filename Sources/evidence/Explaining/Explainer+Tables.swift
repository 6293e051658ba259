import Asking
import Catalog
import Change
import Diagnostics
import History
import Judging
import Policy
import Postgres
import Protocol
import Replication
import System

/// Checks of the published tables for mistakes and slow policies, without subscribers, by the code that serves them.
extension Explainer {
    /// Returns the findings on all published tables, or on one, for the given roles.
    public func examine(_ roles: [String], _ only: TableName? = nil) throws(ExplainFailure) -> [TableFinding] {
        guard let snapshot = freshSnapshot() else { throw .databaseAway }
        let tables = snapshot.tables.filter { table in
            only.map { $0 == TableName(schema: table.schema, name: table.name) } ?? true
        }
        let nobodyDecides = !mayAsk()
        var findings: [TableFinding] = []
        for table in tables {
            // Only the role determines how PostgreSQL can be asked.
            let means = TableBinding.Means(
                publication: settings.publication, mayCompute: !nobodyDecides, nobodyDecides: nobodyDecides,
                deletesAreStrict: settings.deletesAreStrict)
            let found = try roles.map { role throws(ExplainFailure) in try examine(table, role, means, snapshot) }
            findings += found.flatMap(\.self).weighed(of: roles).joiningRoles()
        }
        return findings
    }

    /// True if PostgreSQL has a login that may run policies for the hub. Waits up to five seconds until that is known.
    func mayAsk() -> Bool {
        for _ in 0..<50 {
            switch judge?.availability {
            case nil: return false
            case .available: return true
            case .refused: return false
            case .unknown: BackgroundThread.rest(nanoseconds: 100_000_000)
            }
        }
        return false
    }

    private func examine(
        _ table: CatalogTable, _ role: String, _ means: TableBinding.Means, _ snapshot: CatalogSnapshot
    ) throws(ExplainFailure) -> [TableFinding] {
        let name = table.quotedName
        switch resolve(BindingRequest(role: role, schema: table.schema, table: table.name)) {
        case .unavailable: throw .databaseAway
        case .failed(let message): return [TableFinding(name, role, .wrong, message.text)]
        case .tables(let bindings):
            guard let binding = bindings.first else { throw .databaseAway }
            let warnings = binding.warnings(for: role, by: means, asksPostgres: asks(binding)).map {
                var finding = TableFinding(name, role, .notable, $0.text, sql: fix($0.code, binding, role))
                finding.showsMore = [.rowsRefused, .nothingReadable, .rowsLeftOut].contains($0.code)
                finding.closed = closed($0.code, binding)
                return finding
            }
            return [sight(of: binding, role)].compactMap(\.self) + warnings + slowness(of: binding, role, snapshot)
        }
    }

    /// Returns the reason why a role sees no row, if a warning with this code means that; nil otherwise.
    private func closed(_ code: TextCode, _ binding: TableBinding) -> TableFinding.Closed? {
        switch code {
        case .rowsRefused where binding.access == .unauthorized, .nothingReadable: .byRights
        case .policyNotJudged where !(binding.policy?.parts.contains(where: \.isPermissive) ?? true): .byPolicies
        default: nil
        }
    }

    /// True if PostgreSQL must evaluate a part of the table's policies for each row.
    private func asks(_ binding: TableBinding) -> Bool {
        binding.policy?.parts.contains { $0.term.contains { $0 == .undecided } } ?? false
    }

    // MARK: Visible rows

    /// Returns the finding on whether the role can see any row of the table; nil if a warning already covers it.
    private func sight(of binding: TableBinding, _ role: String) -> TableFinding? {
        let table = binding.table
        guard binding.access != .unauthorized, !binding.isKeptSecret else { return nil }
        guard let policy = binding.policy else {
            if table.hasRowSecurity {
                return TableFinding(
                    table.quotedName, role, .fine, "every row: row level security does not bind the role")
            }
            return TableFinding(
                table.quotedName, role, .notable, "every row: the table has no row level security",
                sql:
                    "ALTER TABLE \(table.quotedName) ENABLE ROW LEVEL SECURITY; CREATE POLICY … ON \(table.quotedName) "
                    + "FOR SELECT TO … USING (…);")
        }
        let permissive = policy.parts.filter(\.isPermissive)
        guard !permissive.isEmpty else { return nil }
        let names = policy.parts.map { "\($0.isPermissive ? "" : "restricted by ")\"\($0.name)\"" }
        return TableFinding(table.quotedName, role, .fine, "rows that policies allow: \(names.joined(separator: ", "))")
    }

    /// Returns the SQL that repairs a finding, for a user with rights to the table to run; nil if there is none.
    private func fix(_ code: TextCode, _ binding: TableBinding, _ role: String) -> String? {
        let name = binding.table.quotedName
        switch code {
        case .deletesFromLog, .deletesHidden, .movesFromLog, .movesHidden, .oldRowsFromLog:
            return "ALTER TABLE \(name) REPLICA IDENTITY FULL;"
        case .rowsRefused where binding.access == .unauthorized, .nothingReadable:
            return "GRANT SELECT ON \(name) TO \(SQLName.quoted(role));"
        case .rowsRefused: return "ALTER TABLE \(name) ADD PRIMARY KEY (…);"
        case .policyNotJudged where !(binding.policy?.parts.contains(where: \.isPermissive) ?? true):
            return "CREATE POLICY … ON \(name) FOR SELECT TO \(SQLName.quoted(role)) USING (…);"
        case .operationsNotPublished:
            return "ALTER PUBLICATION \(SQLName.quoted(settings.publication)) "
                + "SET (publish = 'insert, update, delete, truncate');"
        case .rowsLeftOut:
            let publication = SQLName.quoted(settings.publication)
            return
                "ALTER PUBLICATION \(publication) DROP TABLE \(name); ALTER PUBLICATION \(publication) ADD TABLE \(name);"
        default: return nil
        }
    }

    // MARK: Slow policies

    /// Returns findings on policies that PostgreSQL must evaluate for every row, each with the reason.
    private func slowness(
        of binding: TableBinding, _ role: String, _ snapshot: CatalogSnapshot
    ) -> [TableFinding] {
        guard let policy = binding.policy else { return [] }
        let table = binding.table.quotedName
        return policy.parts.flatMap { part -> [TableFinding] in
            guard part.term.contains({ $0 == .undecided }) else { return [] }
            let unfollowed = recorder.membershipTables(of: part.text, on: policy.table)
                .filter { snapshot.followable[$0] == nil }
            let tables = unfollowed.compactMap { snapshot.related($0)?.quotedName }.sorted()
            guard tables.isEmpty else {
                let publication = StreamCoverage.memberships
                return tables.map { members in
                    TableFinding(
                        table, role, .notable,
                        "policy \"\(part.name)\" reads \(members), and the hub does not follow every change there: "
                            + "PostgreSQL decides every row, which is slower",
                        sql: "ALTER PUBLICATION \(publication) ADD TABLE ONLY \(members);")
                }
            }
            let reasons = recorder.undecided(of: part, on: policy.table)
            let reason = reasons.isEmpty ? "" : ", because of \(reasons.prefix(2).joined(separator: " and of "))"
            return [
                TableFinding(
                    table, role, .notable,
                    "PostgreSQL decides policy \"\(part.name)\" for every row, which is slower\(reason)")
            ]
        }
    }
}

extension [TableFinding] {
    /// Returns the findings with their weights. If only some roles cannot see a table, that counts as intended. If no
    /// role sees any of its rows, that counts as wrong.
    fileprivate func weighed(of roles: [String]) -> [TableFinding] {
        let closedTo = Set(filter { $0.closed != nil }.flatMap(\.roles))
        return map { finding in
            guard let closed = finding.closed else { return finding }
            var weighed = finding
            if !closedTo.isSuperset(of: roles) {
                (weighed.weight, weighed.sql, weighed.showsMore) = (.fine, nil, false)
            } else if closed == .byPolicies {
                weighed.weight = .wrong
            }
            return weighed
        }
    }
}
