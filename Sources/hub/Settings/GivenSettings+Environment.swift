/// Settings from the environment, by the hub's own names and by those of the reference container.
extension GivenSettings {
    /// Reads all variables. An empty variable counts as unset, because compose files pass missing values in this way.
    mutating func readEnvironment(of surroundings: ConfigurationSurroundings) {
        readReferenceNames(surroundings)
        for setting in Setting.all {
            guard let text = surroundings.nonEmpty(setting.environmentName) else { continue }
            give(setting, text, from: .environment([setting.environmentName]))
        }
        reportUnknownVariables(surroundings)
    }

    /// Reads variables by the reference container's names. They replace the file's values, and the hub's own names
    /// replace them.
    private mutating func readReferenceNames(_ surroundings: ConfigurationSurroundings) {
        for setting in Setting.all {
            for name in setting.aliases {
                guard let text = surroundings.nonEmpty(name) else { continue }
                give(setting, text, ofReference: name)
            }
        }
        readPort(surroundings)
        readDatabaseParts(surroundings)
    }

    private mutating func give(_ setting: Setting, _ text: String, ofReference name: String) {
        guard case .duration = setting.type else { return give(setting, text, from: .environment([name])) }
        guard let milliseconds = Int64(text), milliseconds >= 0 else {
            return report("environment \(name)", "expected a number of milliseconds, not \"\(text)\"")
        }
        give(setting, "\(milliseconds)ms", from: .environment([name]))
    }

    /// Reads `PORT`, which replaces only the port of `listen`. The host is that of the file or the default.
    private mutating func readPort(_ surroundings: ConfigurationSurroundings) {
        guard let text = surroundings.nonEmpty("PORT") else { return }
        guard let port = ListenAddress.port(Substring(text)) else {
            return report("environment PORT", "expected a port from 0 to 65535, not \"\(text)\"")
        }
        let listen = Setting(\.listen)
        let address = self[listen]?.text ?? listen.defaultText
        guard let host = address.flatMap({ ListenAddress($0) })?.host else { return }
        give(listen, ListenAddress(host: host, port: port).description, from: .environment(["PORT"]))
    }

    /// Reads the variables with parts of the database's address. For missing parts the reference container's defaults
    /// apply, except for the password.
    private mutating func readDatabaseParts(_ surroundings: ConfigurationSurroundings) {
        let setting = Setting(\.databaseURL)
        let names = ["DB_HOST", "DB_PORT", "DB_USER", "DB_PASSWORD", "DB_NAME"]
            .filter { surroundings.nonEmpty($0) != nil }
        guard !names.isEmpty, surroundings.nonEmpty(setting.environmentName) == nil else { return }
        let portText = surroundings.nonEmpty("DB_PORT") ?? "5432"
        guard let port = ListenAddress.port(Substring(portText)), port > 0 else {
            return report("environment DB_PORT", "expected a port from 1 to 65535, not \"\(portText)\"")
        }
        let connection = ConnectionString(
            host: surroundings.nonEmpty("DB_HOST") ?? "127.0.0.1", port: port,
            user: surroundings.nonEmpty("DB_USER") ?? "supabase_admin",
            password: surroundings.nonEmpty("DB_PASSWORD"), database: surroundings.nonEmpty("DB_NAME") ?? "postgres",
            encryption: readEncryption(surroundings))
        give(setting, connection.revealed, from: .environment(names))
    }

    /// Reads the variables that say how connections are encrypted. If the certificate of an authority is given, the
    /// server's certificate is checked, as in the reference container.
    private mutating func readEncryption(_ surroundings: ConfigurationSurroundings) -> ConnectionString.Encryption? {
        guard let text = surroundings.nonEmpty("DB_SSL") else { return nil }
        guard let isAsked = BooleanText.read(text) else {
            report("environment DB_SSL", "expected \(SettingType.boolean.allowed), not \"\(text)\"")
            return nil
        }
        guard isAsked else { return nil }
        return surroundings.nonEmpty("DB_SSL_CA_CERT").map { .checked(against: $0) } ?? .required
    }

    /// Applies `SLOT_NAME_SUFFIX`, which is appended to the default name of the slot. A configured slot name is not
    /// changed.
    mutating func applySlotSuffix(of surroundings: ConfigurationSurroundings) {
        let setting = Setting(\.slot)
        guard let suffix = surroundings.nonEmpty("SLOT_NAME_SUFFIX"), self[setting] == nil,
            let slot = setting.defaultText
        else { return }
        give(setting, "\(slot)_\(suffix)", from: .environment(["SLOT_NAME_SUFFIX"]))
    }

    private mutating func reportUnknownVariables(_ surroundings: ConfigurationSurroundings) {
        let known = Set(Setting.all.map(\.environmentName) + [Self.fileVariable, Self.serverVariable])
        for name in surroundings.environment.keys.sorted()
        where name.hasPrefix(Setting.environmentPrefix) && !known.contains(name) && !Self.isServiceLink(name) {
            let hint = NearestName.to(name, among: known.sorted()).map { "; did you mean \($0)?" }
            report("environment \(name)", "there is no such setting\(hint ?? Self.listHint)")
        }
    }

    /// True for a variable that Kubernetes sets in each container if a Service is called tidewire:
    /// `TIDEWIRE_SERVICE_HOST`, `TIDEWIRE_SERVICE_PORT_HTTP`, `TIDEWIRE_PORT`, `TIDEWIRE_PORT_4000_TCP_ADDR` …
    private static func isServiceLink(_ name: String) -> Bool {
        let rest = name.dropFirst(Setting.environmentPrefix.count)
        return rest == "SERVICE_HOST" || rest == "PORT" || rest.hasPrefix("SERVICE_PORT") || rest.hasPrefix("PORT_")
    }
}

extension ConfigurationSurroundings {
    func nonEmpty(_ name: String) -> String? {
        environment[name].flatMap { $0.isEmpty ? nil : $0 }
    }
}
