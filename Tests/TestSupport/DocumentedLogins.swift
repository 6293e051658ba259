import Embedded
import Foundation
import Postgres

/// The two logins that a hub needs, created by `sql/040_hub_role.sql` and `sql/045_policy_role.sql` as an operator
/// would create them. A superuser in their place would hide missing rights, so no test of policies runs as one.
///
/// Roles belong to the whole cluster and tests change theirs. So each database has its own pair under other names, with
/// the rights that the files give to `tidewire` and `tidewire_policies`.
public struct DocumentedLogins: Sendable {
    public let hubName: String
    public let policyName: String
    public let hubURL: String
    public let policyURL: String

    public var hub: ConnectionTarget { ConnectionTarget(hubURL) }
    public var policies: ConnectionTarget { ConnectionTarget(policyURL) }
}

extension TestDatabase {
    /// Creates the two logins. `clients` are the roles that tokens will name. The logins can become them, as they can
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
    /// Replaces `role` wherever it is a whole word that is not part of a dotted name.
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
