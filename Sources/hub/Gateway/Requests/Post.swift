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
        /// Range of the payload in the post's payloads.
        let payload: Range<Int>
        let isPrivate: Bool
    }

    unowned let project: ProjectLoop
    let claims: Claims
    let headers: String
    let connection: ConnectionID
    var messages: [Message] = []
    var payloads: [UInt8] = []
    /// True if a missing right is answered with an error. In a batch, messages without a right are left out.
    var mustBeAllowed = false
    /// Private topics to which the sender may write, as known so far.
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

    /// Records an answer. Returns true if it was the last one.
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
