/// Service that determines a client's rights in a private channel. Every question is answered.
///
/// Its methods may be called from any thread. The receiver of an answer must not block.
public protocol ChannelAuthorizing: AnyObject, Sendable {
    func ask(_ question: ChannelQuestion, then: @escaping @Sendable (ChannelAnswer) -> Void)
    func stop()
}

extension ChannelAuthorizer: ChannelAuthorizing {}
