/// Value that is in the setting itself, or in a file that the setting names.
public enum InlineOrFile: Sendable, Equatable {
    case inline(Secret)
    case file(String)

    /// Returns nil for a text that is neither.
    init?(_ text: String, begins beginning: String) {
        guard !text.isEmpty, !text.utf8.contains(0) else { return nil }
        let content = text.drop { $0.isWhitespace }
        self = content.hasPrefix(beginning) ? .inline(Secret(text)) : .file(text)
    }

    /// Text as the configuration file would write it, without any possible secret.
    var shown: String {
        switch self {
        case .inline: Secret.mask
        case .file(let path): path
        }
    }
}
