import Embedded
import Foundation
import Postgres

/// The two logins of a hub, created by `sql/040_hub_role.sql` and `sql/045_policy_role.sql` as operators create them.
/// No test of policies uses a superuser, who would hide missing rights.
///
/// Roles belong to the whole cluster, and tests change them. So each database has its own pair of logins with other
/// names, created by the same files in place of `tidewire` and `tidewire_policies`.
public struct DocumentedLogins: Sendable {
    public let hubName: String
    public let policyName: String
    public let hubURL: String
    public let policyURL: String

    public var hub: ConnectionTarget { ConnectionTarget(hubURL) }
    public var policies: ConnectionTarget { ConnectionTarget(policyURL) }
}

extension TestDatabase {
    /// Creates both logins. `clients` are roles that tokens name. The logins may become these roles, just as they may
    /// become `anon`.
    public func documentedLogins(becoming clients: [String] = []) throws -> DocumentedLogins {
        let (hub, policies) = ("hub_" + name, "policies_" + name)
        for (prefix, role, login) in [("040_", "tidewire", hub), ("045_", "tidewire_policies", policies)] {
            for file in SQLFile.all where file.name.hasPrefix(prefix) {
                try run(file.text.naming(login, insteadOf: role))
            }
            try run("ALTER ROLE \(login) PASSWORD 'documented'")
            for client in clients { try run("GRANT \(client) TO \(login)") }
        }
        let url = { cluster.url(user: $0, password: "documented", database: name) }
        return DocumentedLogins(hubName: hub, policyName: policies, hubURL: url(hub), policyURL: url(policies))
    }
}

extension String {
    /// Returns the text with `role` replaced by `login`, where `role` is a whole word and not part of a dotted name.
    fileprivate func naming(_ login: String, insteadOf role: String) -> String {
        let isOfAName = { (character: Character?) in
            character.map { $0.isLetter || $0.isNumber || $0 == "_" || $0 == "." } ?? false
        }
        var named = ""
        var rest = self[...]
        while let found = rest.range(of: role) {
            let (before, after) = (rest[..<found.lowerBound].last, rest[found.upperBound...].first)
            named += rest[..<found.lowerBound]
            named += isOfAName(before) || isOfAName(after) ? role : login
            rest = rest[found.upperBound...]
        }
        return named + rest
    }
}
