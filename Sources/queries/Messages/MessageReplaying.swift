/// Service that finds old messages.
///
/// Its methods may be called from any thread. The receiver of an answer must not block.
public protocol MessageReplaying: AnyObject, Sendable {
    func replay(_ query: ReplayQuery, then: @escaping @Sendable (ReplayAnswer) -> Void)
    func stop()
}

extension MessageArchive: MessageReplaying {}
