/// Interface for finding old messages.
///
/// Any thread may call any method. The receiver of an answer must not block.
public protocol MessageReplaying: AnyObject, Sendable {
    func replay(_ query: ReplayQuery, then: @escaping @Sendable (ReplayAnswer) -> Void)
    /// Asks how messages that were inserted at log offset `offset` or later were changed afterwards. `then` receives
    /// nil if there is no answer.
    func revisions(since offset: UInt64, then: @escaping @Sendable (MessageRevisions?) -> Void)
    func stop()
}

extension MessageArchive: MessageReplaying {}
