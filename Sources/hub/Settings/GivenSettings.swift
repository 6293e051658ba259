/// Settings as texts before parsing, each from the source that has precedence, with the problems found so far.
struct GivenSettings {
    struct Given {
        let text: String
        let source: SettingSource
    }

    typealias Problem = ConfigurationFailure.Problem

    private(set) var values: [String: Given] = [:]
    private(set) var problems: [Problem] = []

    /// Sets the text of a setting. A later call replaces an earlier one, so callers begin with the source that all
    /// others replace.
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
