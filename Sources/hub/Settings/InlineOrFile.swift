/// Value that is in the setting itself or in a file that the setting names.
public enum InlineOrFile: Sendable, Equatable {
    case inline(Secret)
    case file(String)

    /// Creates a value: a text that begins with `beginning` is the value itself, another one is a path. Returns nil for
    /// an empty text or one with a zero byte.
    init?(_ text: String, begins beginning: String) {
        guard !text.isEmpty, !text.utf8.contains(0) else { return nil }
        let content = text.drop { $0.isWhitespace }
        self = content.hasPrefix(beginning) ? .inline(Secret(text)) : .file(text)
    }

    /// Text as the configuration file would contain it, with a secret hidden.
    var shown: String {
        switch self {
        case .inline: Secret.mask
        case .file(let path): path
        }
    }
}
