import Auth
import Diagnostics
import Settings

/// One project (the reference's tenant): whose tokens it takes, where its database is, and what its clients may do.
public struct ProjectRecord: Sendable, Equatable {
    /// A UUID of ours; others know the project by its name.
    public let id: String
    /// What the first part of the Host header says.
    public let externalID: String
    /// Unix seconds.
    let insertedAt: Int64
    let updatedAt: Int64
    /// The values of `ProjectField.all`, secrets plain; what may be missing is not there.
    var fields: JSONObject
    var extensions: [ProjectExtension]
    /// What the file had beside: it is written again.
    var unknown = JSONObject()
}

// MARK: What it says

extension ProjectRecord {
    public var name: String { fields["name"]?.string ?? externalID }

    public var jwtSecret: Secret? { fields["jwt_secret"]?.string.map { Secret($0) } }

    /// A JSON Web Key Set.
    public var keySet: Secret? { fields["jwt_jwks"].map { Secret($0.text) } }

    /// What its clients' tokens are checked with, and the keys that are not used and why.
    public func verifier(_ expectations: ClaimExpectations) -> (verifier: TokenVerifier, notes: [String]) {
        // The set was looked at when it was described.
        let keys = fields["jwt_jwks"].flatMap { try? JWKSet.parse(limited: $0.bytes) } ?? .none
        let verifier = TokenVerifier(
            secret: jwtSecret?.revealed, keys: keys, expectations: expectations,
            maximumBytes: Limits.maximumTokenBytes)
        return (verifier, keys.notes)
    }

    public var isSuspended: Bool { fields["suspend"]?.bool ?? false }

    /// Nil where no database was described.
    public var database: ConnectionString? {
        if let url = setting(ProjectField.databaseURL.name)?.string { return ConnectionString(url) }
        guard let host = setting("db_host")?.string, let user = setting("db_user")?.string,
            let database = setting("db_name")?.string, let portText = setting("db_port")?.string,
            let port = ListenAddress.port(Substring(portText))
        else { return nil }
        return ConnectionString(
            host: host, port: port, user: user, password: setting("db_password")?.string, database: database,
            encryption: setting("ssl_enforced")?.bool == true ? .required : nil)
    }

    public var publication: String? { setting("publication")?.string }

    /// Nil where only the reference's own name stands, which is no reason to name ours.
    public var slot: String? {
        guard let slot = setting("slot_name")?.string, slot != ProjectExtension.referenceSlot else { return nil }
        return slot
    }

    public var region: String? { setting("region")?.string }

    /// The largest change that is sent whole.
    public var maximumRecordBytes: Int? { setting("poll_max_record_bytes")?.integer }

    public func limits(_ defaults: ProjectDefaults) -> ProjectLimits {
        ProjectField.all.reduce(into: defaults.limits) { limits, field in field.limit(fields[field.name], &limits) }
    }

    private func setting(_ name: String) -> JSONValue? { extensions.first?.settings[name] }
}

extension ProjectRecord: CustomStringConvertible, CustomReflectable {
    public var description: String { "project \(externalID)" }

    /// It holds secrets, so nothing of it is shown.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

// MARK: What changes

/// What has to happen when one description takes the place of another.
public struct ProjectEffects: Sendable, Equatable {
    /// Clients have to come again: other tokens count, or other channels.
    public let disconnectsClients: Bool
    /// The database is another one, or is left alone from now on.
    public let restartsDatabase: Bool
    public let changesLimits: Bool
}

extension ProjectRecord {
    public func effects(replacing old: ProjectRecord, _ defaults: ProjectDefaults) -> ProjectEffects {
        func differs(_ names: [String]) -> Bool { names.contains { fields[$0] != old.fields[$0] } }
        let hasOtherDatabase = extensions.map(\.settings) != old.extensions.map(\.settings)
        return ProjectEffects(
            disconnectsClients: differs(["jwt_secret", "jwt_jwks", "private_only", "suspend"]),
            restartsDatabase: hasOtherDatabase || differs(["jwt_secret", "jwt_jwks", "suspend"]),
            changesLimits: limits(defaults) != old.limits(defaults))
    }
}
