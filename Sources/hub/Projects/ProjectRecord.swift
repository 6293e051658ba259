import Auth
import Diagnostics
import Settings

/// Project (the reference's tenant): the tokens that it takes, its database, and the rights of its clients.
public struct ProjectRecord: Sendable, Equatable {
    /// UUID made by the hub; clients and operators know the project by its name.
    public let id: String
    /// Name of the project, which is the first part of the Host header.
    public let externalID: String
    /// Time of creation, in Unix seconds.
    let insertedAt: Int64
    let updatedAt: Int64
    /// Values of `ProjectField.all`, with secrets in plain text; optional values may be absent.
    var fields: JSONObject
    var extensions: [ProjectExtension]
    /// Other members in the file, which are written again.
    var unknown = JSONObject()
}

// MARK: Values

extension ProjectRecord {
    public var name: String { fields["name"]?.string ?? externalID }

    public var jwtSecret: Secret? { fields["jwt_secret"]?.string.map { Secret($0) } }

    /// JSON Web Key Set of the project; nil if there is none.
    public var keySet: Secret? { fields["jwt_jwks"].map { Secret($0.text) } }

    /// Returns the verifier of the clients' tokens, and notes on the keys that are not used and why.
    public func verifier(_ expectations: ClaimExpectations) -> (verifier: TokenVerifier, notes: [String]) {
        // The set was checked when the project was described.
        let keys = fields["jwt_jwks"].flatMap { try? JWKSet.parse(limited: $0.bytes) } ?? .none
        let verifier = TokenVerifier(
            secret: jwtSecret?.revealed, keys: keys, expectations: expectations,
            maximumBytes: Limits.maximumTokenBytes)
        return (verifier, keys.notes)
    }

    public var isSuspended: Bool { fields["suspend"]?.bool ?? false }

    /// Address of the database; nil if none was described.
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

    /// Name of the slot; nil if only the reference server's own name is given, because that is not meant for the hub's
    /// slot.
    public var slot: String? {
        guard let slot = setting("slot_name")?.string, slot != ProjectExtension.referenceSlot else { return nil }
        return slot
    }

    public var region: String? { setting("region")?.string }

    /// Size of the largest change that is sent whole.
    public var maximumRecordBytes: Int? { setting("poll_max_record_bytes")?.integer }

    public func limits(_ defaults: ProjectDefaults) -> ProjectLimits {
        ProjectField.all.reduce(into: defaults.limits) { limits, field in field.limit(fields[field.name], &limits) }
    }

    private func setting(_ name: String) -> JSONValue? { extensions.first?.settings[name] }
}

extension ProjectRecord: CustomStringConvertible, CustomReflectable {
    public var description: String { "project \(externalID)" }

    /// Empty mirror: a record holds secrets, so nothing of it is shown.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

// MARK: Changes

/// Effects of replacing one description of a project by another.
public struct ProjectEffects: Sendable, Equatable {
    /// True if clients must come again, because other tokens or other channels are allowed.
    public let disconnectsClients: Bool
    /// True if the database is another one, or is not used from now on.
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
