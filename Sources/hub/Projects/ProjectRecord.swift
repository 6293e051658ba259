import Auth
import Bytes
import Diagnostics
import Settings

/// Project, which the reference server calls a tenant: its tokens, its database and the limits of its clients.
public struct ProjectRecord: Sendable, Equatable {
    /// UUID made by the hub. Clients and operators use the project's name instead.
    public let id: String
    /// Name of the project, which is the first part of its host name.
    public let externalID: String
    /// Unix time in seconds at which the project was created.
    let insertedAt: Int64
    /// Unix time in seconds at which the project was last changed.
    let updatedAt: Int64
    /// Values of the fields in `ProjectField.all`; secrets are in plain text, and optional values may be absent.
    var fields: JSONObject
    var extensions: [ProjectExtension]
    /// Members in the project file that this program does not know. They are kept when the file is written.
    var unknown = JSONObject()
}

// MARK: Values

extension ProjectRecord {
    public var name: String { fields["name"]?.string ?? externalID }

    public var jwtSecret: Secret? { fields["jwt_secret"]?.string.map { Secret($0) } }

    /// JSON Web Key Set of the project; nil if it has none.
    public var keySet: Secret? { fields["jwt_jwks"].map { Secret($0.text) } }

    /// Returns the verifier of clients' tokens, and notes about keys that it does not use, with reasons.
    public func verifier(_ expectations: ClaimExpectations) -> (verifier: TokenVerifier, notes: [String]) {
        // The set was checked when the project was described.
        let keys = fields["jwt_jwks"].flatMap { try? JWKSet.parse(limited: $0.bytes) } ?? .none
        let verifier = TokenVerifier(
            secret: jwtSecret?.revealed, keys: keys, expectations: expectations,
            maximumBytes: Limits.maximumTokenBytes)
        return (verifier, keys.notes)
    }

    public var isSuspended: Bool { fields["suspend"]?.bool ?? false }

    /// Address of the database; nil if none is described.
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

    /// Name of the replication slot; nil if none is described or only the reference server's own name, which the hub
    /// does not use.
    public var slot: String? {
        guard let slot = setting("slot_name")?.string, slot != ProjectExtension.referenceSlot else { return nil }
        return slot
    }

    public var region: String? { setting("region")?.string }

    /// Maximum size in bytes of a change that is sent whole; nil for the default.
    public var maximumRecordBytes: Int? { setting("poll_max_record_bytes")?.integer }

    public func limits(_ defaults: ProjectDefaults) -> ProjectLimits {
        ProjectField.all.reduce(into: defaults.limits) { limits, field in field.limit(fields[field.name], &limits) }
    }

    private func setting(_ name: String) -> JSONValue? { extensions.first?.settings[name] }
}

extension ProjectRecord: CustomStringConvertible, CustomReflectable {
    public var description: String { "project \(externalID)" }

    /// Empty mirror, because a record contains secrets.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

// MARK: Changes

/// Effects of replacing a project's record by another.
public struct ProjectEffects: Sendable, Equatable {
    /// True if clients must reconnect, because other tokens or channels are allowed now.
    public let disconnectsClients: Bool
    /// True if the hub must restart the project's services, because its database, its keys or its suspension changed.
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
