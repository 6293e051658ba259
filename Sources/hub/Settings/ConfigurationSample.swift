/// Text of a first `tidewire.conf`: every setting with its meaning and its default, commented out.
public enum ConfigurationSample {
    public static func text(surroundings: ConfigurationSurroundings = .ofThisProcess) -> String {
        let groups = Setting.Group.allCases.map { group in
            let settings = Setting.all.filter { $0.group == group }
            return (["# \(group.rawValue)"] + settings.map { paragraph($0, surroundings) }).joined(separator: "\n\n")
        }
        return ([introduction] + groups).joined(separator: "\n\n") + "\n"
    }

    private static let introduction = """
        # tidewire.conf: what is commented out shows the default.
        #
        # Found by --config, TIDEWIRE_CONFIG, as ./tidewire.conf or as /etc/tidewire/tidewire.conf.
        # Flags (--data-dir) and environment variables (TIDEWIRE_DATA_DIR) win over this file.
        # A value with spaces or signs stands in single quotes.
        """

    private static func paragraph(_ setting: Setting, _ surroundings: ConfigurationSurroundings) -> String {
        """
        # \(setting.summary)
        # Expects \(setting.type.allowed).
        #\(setting.name) = '\(surroundings.defaultText(of: setting) ?? "")'
        """
    }
}
