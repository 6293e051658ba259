import Asking
import Postgres

/// Roles with more rights than a client may have, as listed in the catalog.
public struct PrivilegedRoles: Sendable, Equatable {
    var superusers: Set<String> = []
    /// Roles to which row level security does not apply.
    var bypassing: Set<String> = []
    /// Roles with REPLICATION, which can thereby read everything.
    var replicating: Set<String> = []
    /// Role with which the hub logs in.
    var login = ""

    public init() {}
}

/// Rules for the roles that tokens may name. The hub trusts issuers of tokens to name users, but not to name roles with
/// special rights on the server.
public struct RoleRules: Sendable {
    /// Roles that tokens may name. Nil means all roles that no other rule excludes.
    var allowed: Set<String>?
    /// Roles that tokens may name although they bypass row level security.
    var bypassing: Set<String> = ["service_role"]
    /// Roles with which the hub logs in. Tokens may not name them.
    public var logins: Set<String> = []

    public init(allowed: Set<String>? = nil, bypassing: Set<String> = ["service_role"], logins: Set<String> = []) {
        self.allowed = allowed
        self.bypassing = bypassing
        self.logins = logins
    }

    /// Parses a list of names separated by commas.
    public static func names(_ text: String) -> Set<String> {
        Set(text.split(separator: ",").map { String($0.trimmingBlanks) }.filter { !$0.isEmpty })
    }

    /// True if a token may name the role. `known` is nil until the hub has read the catalog; the caller then checks the
    /// role again after the first reading.
    public func permits(_ role: String, _ known: PrivilegedRoles?) -> Bool {
        if let allowed, !allowed.contains(role) { return false }
        // PostgreSQL's predefined roles have rights to read, write or terminate anything.
        if role.hasPrefix("pg_") || logins.contains(role) { return false }
        guard let known else { return true }
        return !known.superusers.contains(role) && !known.replicating.contains(role) && role != known.login
            && (!known.bypassing.contains(role) || bypassing.contains(role))
    }
}

extension Substring {
    fileprivate var trimmingBlanks: Substring {
        var text = drop { $0 == " " || $0 == "\t" }
        while let last = text.last, last == " " || last == "\t" { text.removeLast() }
        return text
    }
}

extension CatalogReader {
    func privilegedRoles() throws(PostgresError) -> PrivilegedRoles {
        let rows = try query(
            """
            SELECT r.rolname, r.rolsuper, r.rolbypassrls, r.rolreplication, r.rolname = session_user FROM pg_roles r
            WHERE r.rolsuper OR r.rolbypassrls OR r.rolreplication OR r.rolname = session_user
            """)
        var roles = PrivilegedRoles()
        for row in rows.values {
            guard let name = row[0] else { continue }
            if row.flag(1) { roles.superusers.insert(name) }
            if row.flag(2) { roles.bypassing.insert(name) }
            if row.flag(3) { roles.replicating.insert(name) }
            if row.flag(4) { roles.login = name }
        }
        return roles
    }
}
