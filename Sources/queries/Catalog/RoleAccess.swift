import Asking
import Diagnostics
import Postgres

/// Rights of a role to a table, as PostgreSQL decides them.
public struct TableAccess: Sendable, Hashable {
    /// Slots of the columns that the role may SELECT, in order. Empty if the role lacks USAGE on the schema.
    public var selectable: [Int]
    /// Slots of the columns that the role may not SELECT. A filter on one of them fails as if the column did not exist.
    public var hidden: Set<Int>
    /// True if the table's policies apply to the role. False for superusers, roles with BYPASSRLS, and owners whose
    /// table does not force row level security.
    public var rowSecurityIsActive: Bool
    /// Slots of the columns that a policy can read when the role runs it. A policy needs no USAGE on the schema.
    var readable: Set<Int> = []
    /// True if the role has USAGE on the table's schema.
    public var hasUsage = true
    /// Oids of the table's policies that apply to the role.
    var policies: Set<UInt32> = []
    /// Oids of the table's policies that read columns which the role may not read. PostgreSQL then refuses the whole
    /// query, because it checks such rights before it reads rows.
    var forbidding: Set<UInt32> = []

    public init(
        selectable: [Int], hidden: Set<Int> = [], rowSecurityIsActive: Bool, readable: Set<Int> = [],
        hasUsage: Bool = true, policies: Set<UInt32> = [], forbidding: Set<UInt32> = []
    ) {
        assert(hidden.isDisjoint(with: selectable), "what may be selected is not hidden")
        assert(zip(selectable, selectable.dropFirst()).allSatisfy(<), "columns stand in their order, each once")
        assert(hasUsage || selectable.isEmpty, "without USAGE of the schema nothing may be selected")
        self.selectable = selectable
        self.hidden = hidden
        self.rowSecurityIsActive = rowSecurityIsActive
        self.readable = readable
        self.hasUsage = hasUsage
        self.policies = policies
        self.forbidding = forbidding
    }
}

public struct AccessKey: Sendable, Hashable {
    var role: String
    var table: UInt32

    public init(role: String, table: UInt32) {
        self.role = role
        self.table = table
    }
}

/// Rights of the roles that the hub has queried, and whether these roles exist.
public struct RoleBook: Sendable, Equatable {
    /// Roles that exist. A missing role does not exist or has not been queried.
    public var existing: Set<String> = []
    public var access: [AccessKey: TableAccess] = [:]
    /// Oids of functions that policies may call but the role may not, by role.
    var forbidden: [String: Set<UInt32>] = [:]

    public init() {}

    mutating func add(_ other: RoleBook) {
        assert(other.access.keys.allSatisfy { other.existing.contains($0.role) }, "who has rights exists")
        existing.formUnion(other.existing)
        access.merge(other.access) { _, newest in newest }
        forbidden.merge(other.forbidden) { _, newest in newest }
    }

    /// Tables whose rights have been queried, by role.
    var tables: [String: Set<UInt32>] {
        var tables: [String: Set<UInt32>] = [:]
        for key in access.keys { tables[key.role, default: []].insert(key.table) }
        return tables
    }
}

/// Queries for the rights of roles.
///
/// PostgreSQL's own functions evaluate the rights for the role's oid. Role memberships, INHERIT, column grants and
/// PUBLIC thus count as PostgreSQL counts them.
extension CatalogReader {
    /// Returns the rights of each role to the tables that are listed for it. The result lacks roles and tables that do
    /// not exist.
    func roles(_ wanted: [String: Set<UInt32>], of snapshot: CatalogSnapshot) throws(PostgresError) -> RoleBook {
        var book = RoleBook()
        let functions = PostgresArray.literal(snapshot.policies.functions.sorted().map { String($0) })
        for (role, tables) in wanted {
            // Each role is queried separately, because a name that the server's encoding lacks makes the query fail.
            let answers = try ask([
                .kept("SELECT r.rolname FROM pg_roles r WHERE r.rolname = $1::text", [role]),
                .kept(CatalogReader.accessText, [role, PostgresArray.literal(tables.sorted().map { String($0) })]),
                .kept(CatalogReader.forbiddenText, [role, functions]),
            ])
            try add(answers, of: role, snapshot, to: &book)
        }
        return book
    }

    private func add(
        _ answers: [Result<Rows, PostgresError>], of role: String, _ snapshot: CatalogSnapshot, to book: inout RoleBook
    ) throws(PostgresError) {
        guard answers.count == 3 else { throw .impossible("each question has one answer", in: .catalog) }
        guard case .success(let found) = answers[0] else {
            if case .failure(let error) = answers[0], !CatalogReader.isAboutTheName(error) { throw error }
            return
        }
        guard !found.isEmpty else { return }
        book.existing.insert(role)
        for row in try answers[1].get().values {
            guard row.count == 6 else { throw .impossible("rights are told in six parts", in: .catalog) }
            guard let oid = row.number(0), let table = snapshot.related(oid) else { continue }
            assert(table.oid == oid, "rights are of the table that was asked about")
            book.access[AccessKey(role: role, table: oid)] = access(row, table)
        }
        book.forbidden[role] = Set(try answers[2].get().values.compactMap { $0.number(0) })
    }

    private func access(_ row: [String?], _ table: CatalogTable) -> TableAccess {
        let numbers = Set(row.numbers(3) ?? [])
        let mayRead = { row.flag(1) && numbers.contains(table.columns[$0].number) }
        return TableAccess(
            selectable: table.columns.indices.filter(mayRead),
            hidden: Set(table.columns.indices.filter { !mayRead($0) }), rowSecurityIsActive: row[2] != "f",
            readable: Set(table.columns.indices.filter { numbers.contains(table.columns[$0].number) }),
            hasUsage: row.flag(1), policies: row.oids(4),
            forbidding: row.oids(5))
    }

    /// True for SQLSTATE class 22, which means that no name in this database can have such a text.
    private static func isAboutTheName(_ error: PostgresError) -> Bool { error.sqlState?.hasPrefix("22") ?? false }

    /// SQL for a role's rights. Its condition for row level security is that of PostgreSQL's `row_security_active`, but
    /// for a role other than the session's.
    private static let accessText = """
        SELECT c.oid, has_schema_privilege(r.oid, c.relnamespace, 'USAGE'),
            c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
                AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE')),
            ARRAY(SELECT a.attnum FROM pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                    AND has_column_privilege(r.oid, c.oid, a.attnum, 'SELECT'))::text,
            ARRAY(SELECT q.oid FROM pg_policy q
                  WHERE q.polrelid = c.oid AND q.polcmd IN ('r', '*')
                    AND (0 = ANY (q.polroles) OR EXISTS (
                        SELECT FROM pg_roles g WHERE g.oid = ANY (q.polroles) AND pg_has_role(r.oid, g.oid, 'USAGE'))))::text,
            ARRAY(SELECT q.oid FROM pg_policy q
                  WHERE q.polrelid = c.oid AND q.polcmd IN ('r', '*') AND EXISTS (
                      SELECT FROM pg_depend d JOIN pg_class s ON s.oid = d.refobjid
                      WHERE d.classid = 'pg_policy'::regclass AND d.objid = q.oid AND d.refclassid = 'pg_class'::regclass
                        AND d.refobjid <> c.oid AND s.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT CASE d.refobjsubid
                            WHEN 0 THEN has_any_column_privilege(r.oid, s.oid, 'SELECT')
                            ELSE has_column_privilege(r.oid, s.oid, d.refobjsubid::smallint, 'SELECT') END))::text
        FROM pg_roles r CROSS JOIN pg_class c
        WHERE r.rolname = $1::text AND c.oid = ANY ($2::oid[])
        """

    private static let forbiddenText = """
        SELECT p.oid FROM pg_roles r CROSS JOIN pg_proc p
        WHERE r.rolname = $1::text AND p.oid = ANY ($2::oid[]) AND NOT has_function_privilege(r.oid, p.oid, 'EXECUTE')
        """
}
