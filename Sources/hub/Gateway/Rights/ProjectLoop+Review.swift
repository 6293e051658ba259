import Authorizing
import Bytes
import Catalog
import Channels
import Diagnostics
import Net

/// Review of joined channels after the policies of `realtime.messages` changed.
extension ProjectLoop {
    /// Starts a review of all private channels if a new snapshot has other rules. The channels are asked about a few at
    /// a time.
    func reviewRights(_ snapshot: CatalogSnapshot) {
        rights.review.take(snapshot.messageRules)
    }

    /// Continues the review.
    func continueReview() {
        while let place = rights.review.takeNext(before: channels.indices.upperBound, now: loop.now) {
            if let channel = channels[place], channel.conversation.isPrivate { review(channel) }
        }
        if rights.review.isToGoOn { lookAgainLater() }
    }

    /// Asks for the channel's rights. If a question is already under way, its answer may follow the old rules, so it is
    /// asked again.
    private func review(_ channel: Channel) {
        let ticket = channel.conversation.detailed().readTicket
        if case .read(_, let occasion)? = rights.waiting[ticket], !occasion.isReview {
            return askReadRights(channel, occasion)
        }
        rights.review.isAsked()
        askReadRights(channel, .review)
    }

    /// Applies the answer of a review. A lost right closes the channel, as it does with a token that has fewer rights.
    func reviewed(_ channel: Channel, _ answer: ChannelAnswer) {
        switch answer {
        case .failed(let error): _ = isReviewedLater(channel, error)
        case .rights(let broadcast, let presence):
            let details = channel.conversation.detailed()
            let keeps = (broadcast || !details.readsBroadcasts) && (presence == true || details.readsPresence != true)
            guard keeps, broadcast || presence == true else {
                return losesRights(channel)
            }
            setReads(channel, broadcast: broadcast, presence: presence)
            if case .known = details.writes { details.writes = .unknown }
        }
    }

    /// Asks again later if the rights could not be determined, or closes the channel. Returns true if the hub will ask
    /// again.
    func isReviewedLater(_ channel: Channel, _ error: ChannelAuthorizationError) -> Bool {
        if error.isPassing, rights.review.tryAgain(channel.place, now: loop.now) { return true }
        expel(channel, error.systemMessage(topic: String(decoding: channel.subTopic, as: UTF8.self)))
        return false
    }
}

extension ProjectLoop.ReadOccasion {
    fileprivate var isReview: Bool { if case .review = self { true } else { false } }
}

extension ChannelAuthorizationError {
    /// True if the error says nothing about the rules, and may pass.
    fileprivate var isPassing: Bool {
        switch self {
        case .policy, .role: false
        case .canceled, .missingPartition, .unprepared, .unavailable, .initializing, .tooManyConnections, .exhausted:
            true
        }
    }
}
