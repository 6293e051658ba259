import Auth
import Authorizing
import Net
import Protocol
import WebSocket

/// Messages that came by one request, until it is known which of them may be said.
final class Post {
    struct Message {
        let form: BroadcastForm
        let topic: [UInt8]
        let event: [UInt8]
        let id: [UInt8]
        /// Where it lies in the post's payloads.
        let payload: Range<Int>
        let isPrivate: Bool
    }

    unowned let project: ProjectLoop
    let claims: Claims
    let headers: String
    let connection: ConnectionID
    var messages: [Message] = []
    var payloads: [UInt8] = []
    /// Whoever may not say it is told; in a batch it is left out.
    var mustBeAllowed = false
    /// Private topics of which it is known that they may be written to.
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

    func asks(_ count: Int) { unanswered = count }

    /// True when it was the last answer.
    func take(_ answer: ChannelAnswer, of topic: [UInt8]) -> Bool {
        switch answer {
        case .rights(let broadcast, _): if broadcast { allowed.insert(topic) }
        case .failed(let error): failure = error
        }
        unanswered -= 1
        return unanswered == 0
    }
}
