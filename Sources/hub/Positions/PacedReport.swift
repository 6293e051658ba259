/// Report that a client gets at once, and again at most once in each pause.
public struct PacedReport<Content: Sendable>: Sendable {
    /// Content that waits for the end of the pause.
    public private(set) var untold: Content?
    private var isPaused = false

    public init() {}

    /// Takes a new content, which replaces one that waits. Returns the content if it is to be sent now. The caller then
    /// starts a pause.
    public mutating func take(_ content: Content) -> Content? {
        untold = content
        return isPaused ? nil : tellNow()
    }

    /// Ends the pause. Returns the content if one has waited for that. The caller then starts another pause.
    public mutating func pauseHasEnded() -> Content? {
        isPaused = false
        return tellNow()
    }

    /// Returns the content that waits, whether the pause has ended or not. The caller then starts a new pause.
    public mutating func tellNow() -> Content? {
        guard let content = untold else { return nil }
        untold = nil
        isPaused = true
        return content
    }
}
