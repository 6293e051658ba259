import Bytes

/// Extension of a project: its type, and the settings that locate its database.
struct ProjectExtension: Sendable, Equatable {
    static let rowLevelSecurity = "postgres_cdc_rls"
    /// Name of the reference server's slot, which exists only while its connection does. If a description has only this
    /// name, the hub derives its own slot's name from its settings.
    static let referenceSlot = "supabase_realtime_replication_slot"

    let type: String
    /// Settings of the extension; secrets are in plain text.
    let settings: JSONObject
    /// Unix time in seconds at which the extension was created.
    let insertedAt: Int64
    /// Unix time in seconds at which the extension was last changed.
    let updatedAt: Int64
    /// Members in the project file that this program does not know. They are kept when the file is written.
    var unknown = JSONObject()
}

extension ProjectExtension {
    /// Creates an extension from its description in a request, with defaults for members that are left out.
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

    /// Returns an extension's settings after checks. Unknown settings are kept unchanged.
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
        let missing = ProjectField.requiredSettings.first { settings[$0.name] == nil }
        assert(hasURL || missing == nil, "settings without mistakes have every setting that is required")
        return settings
    }

    static let secretSettings = Set((ProjectField.requiredSettings + [.databaseURL]).filter(\.isSecret).map(\.name))
}
