/// Interface for determining a client's rights in a private channel. Every question is answered.
///
/// Any thread may call any method. The receiver of an answer must not block.
public protocol ChannelAuthorizing: AnyObject, Sendable {
    func ask(_ question: ChannelQuestion, then: @escaping @Sendable (ChannelAnswer) -> Void)
    func stop()
}

extension ChannelAuthorizer: ChannelAuthorizing {}
