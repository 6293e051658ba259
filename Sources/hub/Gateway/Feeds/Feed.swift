import Channels
import Delivery
import Protocol

/// Request for changes that is being answered. The request has its own channel in the project, which no client joined.
/// That channel follows the log like others; only the envelopes of its changes differ.
final class Feed {
    enum Stage {
        /// The hub has sent nothing of the answer.
        case joining
        case telling
        /// The page ends here, at a truncation, because its changes must not be mixed with those that follow.
        case interrupted
        /// The feed has reached the log's end, and was to end there.
        case finished
        /// The feed ends early, for this reason.
        case cut(FeedEnding.Reason)
    }

    /// Topic under which the ledger lists feeds. No client's channel can have this name.
    static let ledgerTopic = Array("http:changes".utf8)

    let request: FeedRequest
    let id: ChannelID
    /// Offset of the log's end at the request. Loops read at different speeds. A page contains every change that its
    /// client may have seen through another loop.
    let reach: UInt64
    var stage = Stage.joining
    /// Number of changes sent, with its limit. While the channel is bound, the follower's pipeline keeps the current
    /// value.
    var share: FeedShare
    /// Records to send with a page's end, or when a stream begins.
    var notes: [SystemRecord] = []
    /// True if the answer has ended regularly, or with an ending that tells the client why it is cut.
    var isAnswered = false
    /// Position at the end of the feed's channel.
    var stood: Standing?

    /// Position from which the client can continue.
    enum Standing: Equatable {
        case at(String)
        /// The client has not received all rows of its snapshot, and has no position.
        case amongRows

        var position: String? { if case .at(let position) = self { position } else { nil } }
    }

    init(_ request: FeedRequest, _ id: ChannelID, reach: UInt64) {
        self.request = request
        self.reach = reach
        self.id = id
        share = FeedShare(limit: request.limit)
    }

    var form: FeedForm { request.form }
    var isPage: Bool { form.format == .page }

    /// True if the feed ends at the log's end: it is not live, or it is a waiting page with changes.
    var endsAtSeam: Bool { !request.isLive || isPage && share.told > 0 }

    /// True if the feed has ended, and sends no more changes.
    var isOver: Bool {
        switch stage {
        case .finished, .cut, .interrupted: true
        case .joining, .telling: share.isFull
        }
    }
}

extension Session {
    var feed: Feed? { if case .feed(let feed) = stage { feed } else { nil } }
}
