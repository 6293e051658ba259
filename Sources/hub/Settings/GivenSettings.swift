/// Settings as they were found, not parsed yet, each with the source that wins; and the problems met on the way.
struct GivenSettings {
    struct Given {
        let text: String
        let source: SettingSource
    }

    typealias Problem = ConfigurationFailure.Problem

    private(set) var values: [String: Given] = [:]
    private(set) var problems: [Problem] = []

    /// Sets a value. Later calls win, so callers go from the weakest source to the strongest.
    mutating func give(_ setting: Setting, _ text: String, from source: SettingSource) {
        values[setting.name] = Given(text: text, source: source)
    }

    mutating func report(_ place: String, _ message: String) {
        problems.append(Problem(place: place, message: message))
    }

    subscript(setting: Setting) -> Given? {
        values[setting.name]
    }
}
