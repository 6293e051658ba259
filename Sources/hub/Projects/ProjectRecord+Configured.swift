import Bytes
import Settings

extension ProjectRecord {
    /// Creates the record that the API shows for the project of the settings. This record is not stored.
    public init(of configuration: Configuration, id: String, at now: Int64) {
        var fields = JSONObject()
        let defaults = configuration.projectDefaults
        for field in ProjectField.all { fields[field.name] = field.initial(defaults) }
        fields["name"] = .string(configuration.projectName)
        fields["jwt_secret"] = configuration.jwtSecret.map { .string($0.revealed) }
        var settings = JSONObject()
        for field in ProjectField.optionalSettings { settings[field.name] = field.initial(defaults) }
        settings["region"] = .string(configuration.region)
        settings["publication"] = .string(configuration.publication)
        settings["slot_name"] = .string(configuration.slot)
        settings["poll_max_record_bytes"] = .number(configuration.recordBytes)
        settings["ssl_enforced"] = .bool(false)
        settings[ProjectField.databaseURL.name] = configuration.databaseURL.map { .string($0.revealed) }
        self.init(
            id: id, externalID: configuration.projectName, insertedAt: now, updatedAt: now, fields: fields,
            extensions: [
                ProjectExtension(
                    type: ProjectExtension.rowLevelSecurity, settings: settings, insertedAt: now, updatedAt: now)
            ])
    }
}
