/// One extension of a project: its type, and the settings by which its database is found.
struct ProjectExtension: Sendable, Equatable {
    static let rowLevelSecurity = "postgres_cdc_rls"
    /// The name of the reference's slot, which lives as long as its connection. Where it is all that is said, ours is named
    /// as the hub's settings say.
    static let referenceSlot = "supabase_realtime_replication_slot"

    let type: String
    /// Secrets are plain here.
    let settings: JSONObject
    /// Unix seconds.
    let insertedAt: Int64
    let updatedAt: Int64
    /// What the file had beside: it is written again.
    var unknown = JSONObject()
}

extension ProjectExtension {
    /// The extension that is described, with defaults for what is not said.
    init(
        described: JSONValue, _ defaults: ProjectDefaults, at now: Int64
    ) throws(ProjectMistakes) {
        guard let object = described.object else { throw ProjectMistakes([("type", "is invalid")]) }
        type = try Self.type(object["type"])
        settings = try Self.settings(object["settings"], defaults)
        insertedAt = now
        updatedAt = now
    }

    private static func type(_ value: JSONValue?) throws(ProjectMistakes) -> String {
        guard let value, value != .null else { throw ProjectMistakes([("type", "can't be blank")]) }
        switch value {
        case .string(rowLevelSecurity), .string("postgres"): return rowLevelSecurity
        default: throw ProjectMistakes([("type", "is invalid")])
        }
    }

    /// Settings that are not known stay as they are.
    private static func settings(_ value: JSONValue?, _ defaults: ProjectDefaults) throws(ProjectMistakes) -> JSONObject
    {
        guard let value, value != .null else { throw ProjectMistakes([("settings", "can't be blank")]) }
        guard let given = value.object else { throw ProjectMistakes([("settings", "is invalid")]) }
        var settings = given
        var mistakes = ProjectMistakes()
        let hasURL = ![nil, .null].contains(given[ProjectField.databaseURL.name])
        for field in ProjectField.requiredSettings + [ProjectField.databaseURL] + ProjectField.optionalSettings {
            let isRequired = !hasURL && ProjectField.requiredSettings.contains { $0.name == field.name }
            switch given[field.name] {
            case nil, .null:
                settings[field.name] = field.initial(defaults)
                if isRequired { mistakes.add("settings", "\(field.name) can't be blank") }
            case let value?:
                settings[field.name] = field.cast(value)
                if settings[field.name] == nil { mistakes.add("settings", "\(field.name) \(field.mistake)") }
            }
        }
        guard mistakes.isEmpty else { throw mistakes }
        return settings
    }

    static let secretSettings = Set((ProjectField.requiredSettings + [.databaseURL]).filter(\.isSecret).map(\.name))
}
