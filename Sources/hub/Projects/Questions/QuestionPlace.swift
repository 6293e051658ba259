import Ingest
import Settings
import System

/// Location of a project's log, with the environment for a command that reads it.
struct QuestionPlace: Sendable {
    var log: String
    /// Complete environment of the process that answers a question. It contains no data of other projects.
    var environment: [String: String]
}

extension ProjectPlanner {
    /// Returns the location and settings for questions about a project.
    ///
    /// - Parameter record: record of a stored project; nil for the project of the settings.
    /// - Parameter asker: name of the operator who asks, for the audit.
    func questionPlace(_ record: ProjectRecord?, by asker: String? = nil) -> QuestionPlace {
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
        variables["OPERATOR_SUB"] = asker
        let policyLogin = Setting(\.policyDatabaseURL).environmentName
        assert(isOfSettings || variables[policyLogin] == nil, "a stored project does not get the settings' login")
        let place = isOfSettings ? configuration.dataDirectory : directory
        return QuestionPlace(log: IngestService.Settings.logDirectory(place), environment: variables)
    }

    /// Adds the secrets that the command `doctor` checks: those with which clients' tokens are verified.
    func addSecrets(of record: ProjectRecord?, to place: inout QuestionPlace) {
        let isOfSettings = record == nil || record?.externalID == configuration.projectName
        let secret = record?.jwtSecret ?? (isOfSettings ? configuration.jwtSecret : nil)
        place.environment[Setting(\.jwtSecret).environmentName] = secret?.revealed
        guard isOfSettings, let keys = configuration.keySet else { return }
        place.environment[Setting(\.keySet).environmentName] =
            switch keys {
            case .inline(let text): text.revealed
            case .file(let path): path
            }
    }

    /// Environment variables that every command gets: search paths, locale, time zone, certificates, and those of libpq
    /// except the password.
    static var surroundings: [String: String] {
        let wanted = ["PATH", "HOME", "TZ", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"]
        return ConfigurationSurroundings.ofThisProcess.environment.filter { name, _ in
            wanted.contains(name) || name.hasPrefix("LC_") || name.hasPrefix("PG") && name != "PGPASSWORD"
        }
    }
}
