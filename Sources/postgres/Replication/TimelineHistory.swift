import Change

/// Timeline history file, in the form that the server stores and sends:
///
///     1<tab>0/30001C0<tab>no recovery target specified
enum TimelineHistory {
    /// Returns how the history in this file relates to the timeline that the log followed.
    static func branch(from timeline: UInt32, in text: String) -> ServerState.Branch {
        for line in text.split(whereSeparator: \.isNewline) {
            let words = line.split(whereSeparator: \.isWhitespace)
            guard words.count >= 2, UInt32(words[0]) == timeline, let fork = LSN(String(words[1])) else { continue }
            return .left(at: fork)
        }
        return .unrelated
    }
}
