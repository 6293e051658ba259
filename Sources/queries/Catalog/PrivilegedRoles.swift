import Asking
import Postgres

/// Roles that are more than a client's, as the catalog has them.
public struct PrivilegedRoles: Sendable, Equatable {
    var superusers: Set<String> = []
    /// Row level security does not bind them.
    var bypassing: Set<String> = []
    /// They may replicate, and so read everything.
    var replicating: Set<String> = []
    /// Who the hub itself is there.
    var login = ""

    public init() {}
}

/// Which roles tokens may name. Whoever signs tokens is trusted with people's names, and not with the server's.
public struct RoleRules: Sendable {
    /// Nil: any that the other rules let pass.
    var allowed: Set<String>?
    /// Those that may bypass row level security.
    var bypassing: Set<String> = ["service_role"]
    /// Under whose names the hub logs in.
    public var logins: Set<String> = []

    public init(allowed: Set<String>? = nil, bypassing: Set<String> = ["service_role"], logins: Set<String> = []) {
        self.allowed = allowed
        self.bypassing = bypassing
        self.logins = logins
    }

    /// Names between commas.
    public static func names(_ text: String) -> Set<String> {
        Set(text.split(separator: ",").map { String($0.trimmingBlanks) }.filter { !$0.isEmpty })
    }

    /// `known` is nil for as long as the catalog was never read; what it says is looked at as soon as it is.
    public func permits(_ role: String, _ known: PrivilegedRoles?) -> Bool {
        if let allowed, !allowed.contains(role) { return false }
        // PostgreSQL's own: they read, write or end what they like, or belong to nobody.
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
