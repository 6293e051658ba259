/// Finds out what somebody may do in a private channel. Every question is answered.
///
/// It may be called from any thread. Whoever takes an answer must not wait for anything.
public protocol ChannelAuthorizing: AnyObject, Sendable {
    func ask(_ question: ChannelQuestion, then: @escaping @Sendable (ChannelAnswer) -> Void)
    func stop()
}

extension ChannelAuthorizer: ChannelAuthorizing {}
