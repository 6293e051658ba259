/// Subjects that the log has named, so that it names each once. The set is bounded; when it is full, the log says once
/// that further subjects are not named.
public struct LoggedOnce: Sendable {
    private let maximum: Int
    private let ending: StaticString
    private var named: Set<String> = []
    private var isFull = false

    /// - Parameter ending: what the log says when it has named `maximum` subjects and meets another one.
    public init(atMost maximum: Int, ending: StaticString) {
        self.maximum = maximum
        self.ending = ending
    }

    /// Returns true if the log has yet to name the subject.
    public mutating func isNews(_ subject: String, in log: Log = .shared) -> Bool {
        if named.contains(subject) || isFull { return false }
        if named.count < maximum { return named.insert(subject).inserted }
        isFull = true
        log.warning(ending, [.count(maximum), .hint("repair those that it has named, then start the hub again")])
        return false
    }
}
