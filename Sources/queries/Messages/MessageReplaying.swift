/// Service that finds old messages.
///
/// Its methods may be called from any thread. The receiver of an answer must not block.
public protocol MessageReplaying: AnyObject, Sendable {
    func replay(_ query: ReplayQuery, then: @escaping @Sendable (ReplayAnswer) -> Void)
    /// Asks what has become of the log's messages from the offset on. An answer without the offset means that nobody
    /// could be asked.
    func revisions(since offset: UInt64, then: @escaping @Sendable (MessageRevisions?) -> Void)
    func stop()
}

extension MessageArchive: MessageReplaying {}
