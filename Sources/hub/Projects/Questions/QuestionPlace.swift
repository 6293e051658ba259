import Ingest
import Settings
import System

/// Location for a question: a project's log, and the settings that commands on the log read.
struct QuestionPlace: Sendable {
    var log: String
    /// All variables that the answering process gets from the hub. The variables contain nothing of other projects.
    var environment: [String: String]
}

extension ProjectPlanner {
    /// - Parameter record: record of a stored project; nil for the project of the settings.
    func questionPlace(_ record: ProjectRecord?) -> QuestionPlace {
        var variables = Self.surroundings
        for effective in configuration.effective where !effective.isDefault && !effective.setting.type.isSecret {
            variables[effective.setting.environmentName] = effective.shown
        }
        let isOfSettings = record == nil || record?.externalID == configuration.projectName
        let directory = record.map { ProjectPlace.directory(of: $0, configuration) } ?? configuration.dataDirectory
        let database = record?.database ?? (isOfSettings ? configuration.databaseURL : nil)
        variables[Setting(\.databaseURL).environmentName] = database?.revealed
        if isOfSettings {
            variables[Setting(\.policyDatabaseURL).environmentName] = configuration.policyDatabaseURL?.revealed
        }
        if let publication = record?.publication { variables[Setting(\.publication).environmentName] = publication }
        variables["ON_BEHALF_OF"] = "operators' API"
        let policyLogin = Setting(\.policyDatabaseURL).environmentName
        assert(isOfSettings || variables[policyLogin] == nil, "a stored project does not get the settings' login")
        let place = isOfSettings ? configuration.dataDirectory : directory
        return QuestionPlace(log: IngestService.Settings.logDirectory(place), environment: variables)
    }

    /// Variables that every program gets: where programs are, how time and text are written, how libpq finds its files.
    private static var surroundings: [String: String] {
        let wanted = ["PATH", "HOME", "TZ", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"]
        return ConfigurationSurroundings.ofThisProcess.environment.filter { name, _ in
            wanted.contains(name) || name.hasPrefix("LC_") || name.hasPrefix("PG") && name != "PGPASSWORD"
        }
    }
}
