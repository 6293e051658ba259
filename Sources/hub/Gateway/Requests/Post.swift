import Auth
import Authorizing
import Net
import Protocol
import WebSocket

/// Messages of one HTTP request, kept until their sender's rights are known.
final class Post {
    struct Message {
        let form: BroadcastForm
        let topic: [UInt8]
        let event: [UInt8]
        let id: [UInt8]
        /// Range of the payload in `Post.payloads`.
        let payload: Range<Int>
        let isPrivate: Bool
    }

    unowned let project: ProjectLoop
    let claims: Claims
    let headers: String
    let connection: ConnectionID
    var messages: [Message] = []
    var payloads: [UInt8] = []
    /// True if the hub answers a missing right with an error. Otherwise it leaves out the messages without a right.
    var mustBeAllowed = false
    /// Private topics to which the sender may write, according to the answers so far.
    private(set) var allowed: Set<[UInt8]> = []
    private(set) var failure: ChannelAuthorizationError?
    private var unanswered = 0

    init(_ project: ProjectLoop, _ claims: Claims, headers: String, answering connection: ConnectionID) {
        self.project = project
        self.claims = claims
        self.headers = headers
        self.connection = connection
    }

    var topicsToAsk: Set<[UInt8]> { Set(messages.lazy.filter(\.isPrivate).map(\.topic)) }

    func asks(_ count: Int) {
        assert(count > 0 && unanswered == 0, "a post asks once, about some topic")
        unanswered = count
    }

    /// Records the answer about the rights to a topic. Returns true if it was the last one.
    func take(_ answer: ChannelAnswer, of topic: [UInt8]) -> Bool {
        switch answer {
        case .rights(let broadcast, _): if broadcast { allowed.insert(topic) }
        case .failed(let error): failure = error
        }
        assert(unanswered > 0, "each topic has one answer")
        unanswered -= 1
        return unanswered == 0
    }
}
