import Channels
import Delivery
import Protocol

/// A request for changes while it is answered. Its channel is one of the project's, joined by nobody, and follows the log as
/// others do: only what stands around its changes is another.
final class Feed {
    enum Stage {
        /// Nothing of the answer has gone out.
        case joining
        case telling
        /// What it told must stand before what follows.
        case interrupted
        /// It has come to the log's end, and was to go no further.
        case finished
        /// It ends before that.
        case cut(FeedEnding.Reason)
    }

    let request: FeedRequest
    let id: ChannelID
    /// The log's end when it was asked for. Loops are not equally far: what somebody has seen on another one is in a page.
    let reach: UInt64
    var stage = Stage.joining
    /// While no follower keeps it.
    var share: FeedShare
    /// What a page tells beside its changes, or a stream that has not begun.
    var notes: [SystemRecord] = []
    /// Its answer has come to an end of its own, whatever that is: its client was told so.
    var isAnswered = false
    /// Where it stood when its channel ended.
    var stood: Standing?

    /// Whether, and from where, its client can go on.
    enum Standing: Equatable {
        case at(String)
        /// It has not got all the rows that it begins with.
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

    /// Nothing of what comes after the log's end is for it: a page that waits has what it waited for.
    var endsAtSeam: Bool { !request.isLive || isPage && share.told > 0 }

    /// It is at an end, and tells no more.
    var isOver: Bool {
        switch stage {
        case .finished, .cut, .interrupted: true
        case .joining, .telling: share.isFull
        }
    }
}

extension Session {
    var feed: Feed? { if case .feed(let feed) = stage { feed } else { nil } }

    /// In what its channels get their changes.
    var envelopeForm: EnvelopeForm {
        if case .feed(let feed) = stage { .records(feed.form) } else { .messages(version) }
    }
}
