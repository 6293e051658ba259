/// What a setting says itself, or leaves to a file.
public enum InlineOrFile: Sendable, Equatable {
    case inline(Secret)
    case file(String)

    /// Nil for what is neither.
    init?(_ text: String, begins beginning: String) {
        guard !text.isEmpty, !text.utf8.contains(0) else { return nil }
        let content = text.drop { $0.isWhitespace }
        self = content.hasPrefix(beginning) ? .inline(Secret(text)) : .file(text)
    }

    /// As the configuration file would write it, without what could be a secret.
    var shown: String {
        switch self {
        case .inline: Secret.mask
        case .file(let path): path
        }
    }
}
