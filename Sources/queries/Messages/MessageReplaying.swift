/// Finds messages of the past.
///
/// It may be called from any thread. Whoever takes an answer must not wait for anything.
public protocol MessageReplaying: AnyObject, Sendable {
    func replay(_ query: ReplayQuery, then: @escaping @Sendable (ReplayAnswer) -> Void)
    func stop()
}

extension MessageArchive: MessageReplaying {}
