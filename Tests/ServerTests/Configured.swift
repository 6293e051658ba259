import Settings

/// Nothing around a configuration but these variables.
func surroundings(environment: [String: String] = [:]) -> ConfigurationSurroundings {
    ConfigurationSurroundings(environment: environment, isRoot: false) { _ in .missing }
}

func flag(_ setting: Setting, _ text: String) -> SettingOverride {
    SettingOverride(setting, text, from: .flag("--\(setting.flag)"))
}
