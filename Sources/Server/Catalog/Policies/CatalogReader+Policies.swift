import Diagnostics
import Policy
import Postgres

/// Reads policies and everything that they speak of.
///
/// Statement by statement: PostgreSQL writes their texts from the newest catalog, whatever a transaction sees. That it
/// all belongs together is for the fingerprint to say, which is asked for before and after.
extension CatalogReader {
    /// The policies of the tables, compiled. What is as it was before is not compiled again.
    func policyBook(
        version: UInt64, of tables: [CatalogTable], _ foldsASCIIPlainly: Bool, after before: PolicyBook?
    ) throws(PostgresError) -> PolicyBook {
        var survey = PolicySurvey(tables, foldsASCIIPlainly, compiling)
        survey.book.surroundings = try surroundings()
        try survey.readSettings(self)
        try survey.readPolicies(of: Set(tables.filter(\.hasPolicies).map(\.oid)), self)
        try survey.follow(self)
        var book = survey.book
        try compile(survey, into: &book)
        if let before, book.isSame(as: before) {
            book.version = before.version
        } else {
            book.version = version
        }
        return book
    }

    private func compile(_ survey: PolicySurvey, into book: inout PolicyBook) throws(PostgresError) {
        let compiler = { (policy: CatalogPolicy, table: RelationFacts) in
            compiling.compile(survey.catalog, policy.text, table)
        }
        for (oid, policies) in book.policies {
            guard let facts = survey.relation(oid) else { continue }
            book.policies[oid] = policies.map { policy in
                var policy = policy
                policy.compiled = compiler(policy, facts)
                policy.functions = survey.functions(of: policy.text)
                return policy
            }
        }
        book.functions = book.policies.values.joined().reduce(into: []) { $0.formUnion($1.functions) }
    }

    /// Policies that count for SELECT. One without USING lets nobody see anything.
    func policies(of tables: Set<UInt32>) throws(PostgresError) -> [CatalogPolicy] {
        let rows = try query(
            """
            SELECT q.oid, q.polrelid, q.polname, q.polpermissive, pg_get_expr(q.polqual, q.polrelid),
                ARRAY(SELECT d.refobjsubid FROM pg_depend d
                      WHERE d.classid = 'pg_policy'::regclass AND d.objid = q.oid
                        AND d.refclassid = 'pg_class'::regclass AND d.refobjid = q.polrelid AND d.refobjsubid > 0)::text
            FROM pg_policy q
            WHERE q.polrelid = ANY ($1::oid[]) AND q.polcmd IN ('r', '*') AND q.polqual IS NOT NULL
            ORDER BY q.polrelid, q.polname COLLATE "C"
            """, [PostgresArray.literal(tables.sorted().map { String($0) })])
        return rows.values.compactMap { row in
            guard let oid = row.number(0), let table = row.number(1), let name = row[2], let text = row[4] else {
                return nil
            }
            return CatalogPolicy(
                oid: oid, table: table, name: name, isPermissive: row.flag(3), text: text,
                columns: Set(row.numbers(5) ?? []), compiled: PolicyCompiling.undecided)
        }
    }
}
