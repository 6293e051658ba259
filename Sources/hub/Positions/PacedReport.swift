/// Report that the hub sends immediately the first time, and after that at most once in each pause.
public struct PacedReport<Content: Sendable>: Sendable {
    /// Content that waits until the pause ends; nil if none does.
    public private(set) var untold: Content?
    private var isPaused = false

    public init() {}

    /// Sets the report's content in place of content that waits. Returns it if it is to be sent now; the caller then
    /// starts a pause.
    public mutating func take(_ content: Content) -> Content? {
        untold = content
        return isPaused ? nil : tellNow()
    }

    /// Ends the pause. Returns the content if some was waiting; the caller then starts another pause.
    public mutating func pauseHasEnded() -> Content? {
        isPaused = false
        return tellNow()
    }

    /// Returns waiting content even before the pause has ended; nil if there is none. The caller then starts a new
    /// pause.
    public mutating func tellNow() -> Content? {
        guard let content = untold else { return nil }
        untold = nil
        isPaused = true
        return content
    }
}
