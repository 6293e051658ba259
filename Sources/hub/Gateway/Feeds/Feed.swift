import Channels
import Delivery
import Protocol

/// HTTP request for changes that is being answered. It has its own channel in the project, which no client joined. The
/// channel follows the log like others; only the envelopes around its changes differ.
final class Feed {
    enum Stage {
        /// The hub has not sent any part of the HTTP answer.
        case joining
        /// The hub has begun the HTTP answer and sends changes.
        case telling
        /// The feed ends before its limit, at a truncation: a page must not mix changes from before and after it.
        case interrupted
        /// The feed has reached the log's end and was meant to end there.
        case finished
        /// The hub ends the feed before its requested end, for this reason.
        case cut(FeedEnding.Reason)
    }

    /// Topic under which the ledger lists feeds. No client's channel can have it.
    static let ledgerTopic = Array("http:changes".utf8)

    let request: FeedRequest
    let id: ChannelID
    /// Offset of the log's end when the request arrived. A page delivers at least up to it, because its client may have
    /// seen earlier changes through a faster loop.
    let reach: UInt64
    var stage = Stage.joining
    /// Limit of changes and number sent so far. While the channel is bound, the follower's pipeline has the current
    /// value.
    var share: FeedShare
    /// Records (messages for the client) to send at a page's end, or at a stream's beginning.
    var notes: [SystemRecord] = []
    /// True if the hub has sent the whole HTTP answer, or an ending that gives the reason for ending early.
    var isAnswered = false
    /// Position up to which the client has everything, recorded when the feed's channel ended; nil until then.
    var stood: Standing?

    /// Place in the log from which a client can continue.
    enum Standing: Equatable {
        case at(String)
        /// The client has received only some rows of its snapshot, so it has no position.
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

    /// True if the feed ends at the log's end: it is not live, or it is a page that waited and has changes.
    var endsAtSeam: Bool { !request.isLive || isPage && share.told > 0 }

    /// True if the feed sends no more changes.
    var isOver: Bool {
        switch stage {
        case .finished, .cut, .interrupted: true
        case .joining, .telling: share.isFull
        }
    }
}

extension Session {
    /// Feed that the session serves; nil if it serves none.
    var feed: Feed? { if case .feed(let feed) = stage { feed } else { nil } }
}
