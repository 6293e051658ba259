/// One extension of a project: its type, and the settings by which its database is found.
struct ProjectExtension: Sendable, Equatable {
    static let rowLevelSecurity = "postgres_cdc_rls"
    /// Name of the reference server's slot, which lives as long as its connection. If a description gives only this
    /// name, the hub names its own slot by its settings.
    static let referenceSlot = "supabase_realtime_replication_slot"

    let type: String
    /// Settings of the extension, with secrets in plain text.
    let settings: JSONObject
    /// Time of creation, in Unix seconds.
    let insertedAt: Int64
    let updatedAt: Int64
    /// Other members in the file, which are written again.
    var unknown = JSONObject()
}

extension ProjectExtension {
    /// Creates an extension from its description, with defaults for members that are not given.
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

    /// Returns the checked settings. Settings that are not known stay as they are.
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
