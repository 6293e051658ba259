import Asking
import Diagnostics
import Policy
import Postgres

/// Queries for policies and for everything that they refer to.
///
/// The queries need no common transaction, because PostgreSQL always prints policies from its newest catalog. The
/// caller reads the fingerprint before and after the queries, to see if the answers belong together.
extension CatalogReader {
    /// Returns the policies of the tables with their compiled terms. Unchanged policies are not compiled again.
    func policyBook(
        version: UInt64, of tables: [CatalogTable], _ text: TextRules, after before: PolicyBook?
    ) throws(PostgresError) -> PolicyBook {
        var survey = PolicySurvey(tables, text, compiling, after: before)
        survey.book.surroundings = try surroundings()
        try survey.readSettings(self)
        report(survey.settings, text)
        try survey.readPolicies(of: Set(tables.filter(\.hasPolicies).map(\.oid)), self)
        try survey.follow(self)
        var book = survey.book
        // Functions and types have no effect if there are no policies.
        if book.policies.isEmpty { book.surroundings = "" }
        try compile(survey, of: tables, into: &book)
        if let before, book.isSame(as: before) {
            book.version = before.version
        } else {
            book.version = version
        }
        return book
    }

    /// Logs settings because of which PostgreSQL decides policies, or no policy is evaluated at all.
    private func report(_ settings: ValueSettings.Differences, _ text: TextRules) {
        // In an open transaction or a record there is nothing to log, because the catalog's thread has logged it.
        guard asked.sharesTime else { return }
        if text.encoding != .utf8, bench.isNews("encoding") {
            Log.shared.warning(
                "the database's encoding is not UTF8: PostgreSQL decides policies and filters that compare characters, which is slower",
                [.hint("with a database in ENCODING 'UTF8', the hub decides these policies and filters itself")])
        }
        if !settings.followed.isEmpty, bench.isNews("settings \(settings.followed)") {
            Log.shared.info(
                "the server, the database or a role has settings that change how values read: PostgreSQL decides policies and filters that depend on them",
                [.setting(settings.followed.joined(separator: "; "))])
        }
        if !settings.refused.isEmpty, bench.isNews("refused \(settings.refused)") {
            Log.shared.warning(
                "a setting of the server, the database or a role prevents policies from being evaluated: the policies show no rows",
                [
                    .setting(settings.refused.joined(separator: "; ")),
                    .hint("reset it: ALTER DATABASE … RESET, ALTER ROLE … RESET"),
                ])
        }
    }

    private func compile(
        _ survey: PolicySurvey, of tables: [CatalogTable], into book: inout PolicyBook
    ) throws(PostgresError) {
        for (oid, policies) in book.policies {
            guard let facts = survey.relation(oid) else { continue }
            book.policies[oid] = policies.map { policy in
                if survey.kept.contains(policy.oid) { return policy }
                var policy = policy
                policy.compiled = compiling.compile(survey.catalog, policy.text, facts)
                if !survey.holds(policy.compiled.term) { policy.compiled = PolicyCompiling.undecided }
                policy.functions = survey.functions(of: policy.text)
                return policy
            }
        }
        book.unsettled = Set((tables + book.tables.values).filter(\.isUnsettled).map(\.oid))
        for policy in book.policies.values.joined() where policy.text.isEmpty || survey.kept.contains(policy.oid) {
            book.unsettled.insert(policy.table)
        }
        for policy in book.policies.values.joined() where !policy.functions.isDisjoint(with: book.unsettledFunctions) {
            book.unsettled.insert(policy.table)
        }
        try confirm(survey, &book)
        unsettleReaders(survey, &book)
        book.functions = book.policies.values.joined().reduce(into: []) { $0.formUnion($1.functions) }
    }

    /// Marks policies as unsettled if they read tables whose own policies are unsettled. Unsettled means that a lock
    /// prevents reading them.
    private func unsettleReaders(_ survey: PolicySurvey, _ book: inout PolicyBook) {
        if book.unsettled.isEmpty { return }
        for policy in book.policies.values.joined()
        where !survey.tables(of: policy.text).isDisjoint(with: book.unsettled) {
            book.unsettled.insert(policy.table)
        }
    }

    // MARK: Confirmation by PostgreSQL

    /// Compares how PostgreSQL reads each policy with how it reads the compiled term. If the two differ, or PostgreSQL
    /// could not be asked, PostgreSQL decides the policy's rows.
    private func confirm(_ survey: PolicySurvey, _ book: inout PolicyBook) throws(PostgresError) {
        let compiled = book.policies.values.joined().filter {
            $0.compiled.term != .undecided && !survey.kept.contains($0.oid)
        }
        let outcomes = try bench.outcomes(compiled.flatMap { trials($0, survey) }, self)
        var isForbidden = survey.isForbidden
        for policy in compiled {
            let found = trials(policy, survey).map { outcomes[$0] ?? .refused }
            if found.contains(.busy) { book.unsettled.insert(policy.table) }
            if found.contains(.forbidden) { isForbidden = true }
            if found.count == 2, found[0] == found[1], case .written = found[0] { continue }
            book.leaveToServer(policy)
            if !found.contains(.forbidden), !found.contains(.busy) { reportDifference(policy) }
        }
        if isForbidden { reportForbidden() }
    }

    /// Returns two trials for PostgreSQL: one of the policy's text and one of the compiled term. Empty if the term has
    /// no text.
    private func trials(_ policy: CatalogPolicy, _ survey: PolicySurvey) -> [ViewTrial] {
        guard let rendering = policy.compiled.rendering, let table = survey.relation(policy.table) else { return [] }
        let name = Quoted.identifier(table.name.schema) + "." + Quoted.identifier(table.name.name)
        return [policy.text, rendering].map { text in
            ViewTrial(searchPath: "pg_catalog", query: "SELECT (\n\(text)\n) AS result FROM \(name)")
        }
    }

    private func reportDifference(_ policy: CatalogPolicy) {
        guard bench.isNews("\(policy.oid) \(policy.text)") else { return }
        metrics.policiesMisread.add()
        Log.shared.warning(
            "PostgreSQL reads a policy differently than the hub: PostgreSQL decides the policy's rows",
            [.policy(policy.name), .oid(policy.oid)])
    }

    private func reportForbidden() {
        guard bench.isNews("forbidden") else { return }
        Log.shared.warning(
            "cannot ask PostgreSQL how it reads policies: PostgreSQL decides all of their rows, which is slower",
            [.hint("GRANT TEMPORARY ON DATABASE … and USAGE ON SCHEMA … to the hub's role or a role it may become")])
    }

    // MARK: Reading

    /// Returns the tables' policies for SELECT. A policy without USING shows no rows and is omitted. The text of a
    /// policy that names a locked table is empty.
    func policies(of tables: Set<UInt32>) throws(PostgresError) -> [CatalogPolicy] {
        let rows = try query(
            """
            SELECT q.oid, q.polrelid, q.polname, q.polpermissive,
                CASE WHEN NOT EXISTS (
                    SELECT FROM pg_depend d
                    WHERE d.classid = 'pg_policy'::regclass AND d.objid = q.oid AND d.refclassid = 'pg_class'::regclass
                        AND \(CatalogReader.isLocked("d.refobjid"))) THEN pg_get_expr(q.polqual, q.polrelid) END,
                ARRAY(SELECT d.refobjsubid FROM pg_depend d
                      WHERE d.classid = 'pg_policy'::regclass AND d.objid = q.oid
                        AND d.refclassid = 'pg_class'::regclass AND d.refobjid = q.polrelid AND d.refobjsubid <> 0)::text
            FROM pg_policy q
            WHERE q.polrelid = ANY ($1::oid[]) AND q.polcmd IN ('r', '*') AND q.polqual IS NOT NULL
            ORDER BY q.polrelid, q.polname COLLATE "C"
            """, [PostgresArray.literal(tables.sorted().map { String($0) })])
        return rows.values.compactMap { row in
            guard let oid = row.number(0), let table = row.number(1), let name = row[2] else { return nil }
            let text = row[4] ?? ""
            return CatalogPolicy(
                oid: oid, table: table, name: name, isPermissive: row.flag(3), text: text,
                columns: Set(row.numbers(5) ?? []), use: RowUse(of: text), compiled: PolicyCompiling.undecided)
        }
    }
}
