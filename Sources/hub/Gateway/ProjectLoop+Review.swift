import Authorizing
import Bytes
import Catalog
import Channels
import Diagnostics
import Net

/// Progress of asking again for the read rights of private channels, after the rules changed.
struct RightsReview {
    /// Rules under which the channels were admitted; nil until the catalog is known.
    fileprivate var rules: String?
    /// Place of the next channel to ask about; nil when all have been asked about.
    fileprivate var next: UInt32?
    /// Number of questions under way.
    fileprivate var asked = 0
    /// Places of channels whose rights could not be determined. The hub asks about them again at `againAt`.
    fileprivate var again: [UInt32] = []
    fileprivate var againAt: UInt64 = 0
    /// Number of failed attempts for each place.
    fileprivate var failures: [UInt32: Int] = [:]

    mutating func isAnswered() {
        assert(asked > 0, "each question of a review has one answer")
        asked -= 1
    }
}

/// Review of joined channels after the policies of `realtime.messages` changed.
extension ProjectLoop {
    /// Starts a review of all private channels if a new snapshot has other rules. The channels are asked about a few at
    /// a time.
    func reviewRights(_ snapshot: CatalogSnapshot) {
        let known = reasking.rules
        reasking.rules = snapshot.messageRules
        // PostgreSQL itself admitted these channels a moment ago, before the catalog was first read.
        guard known != nil, known != snapshot.messageRules else { return }
        reasking.next = 0
        reasking.again = []
        reasking.failures = [:]
    }

    /// Continues the review. Only a few questions are under way at any time, so that joins are not delayed.
    func continueReview() {
        while reasking.asked < Limits.rightsReviewedAtOnce, let place = takeReviewed() {
            if let channel = channels[place], channel.conversation.isPrivate { review(channel) }
        }
        if !reasking.again.isEmpty { lookAgainLater() }
    }

    private func takeReviewed() -> UInt32? {
        if let place = reasking.next, place < channels.indices.upperBound {
            reasking.next = place + 1
            return place
        }
        reasking.next = nil
        return loop.now >= reasking.againAt ? reasking.again.popLast() : nil
    }

    /// Asks for the channel's rights. If a question is already under way, its answer may follow the old rules, so it is
    /// asked again.
    private func review(_ channel: Channel) {
        let ticket = channel.conversation.detailed().readTicket
        if case .read(_, let occasion)? = rightsWaiting[ticket], !occasion.isReview {
            return askReadRights(channel, occasion)
        }
        reasking.asked += 1
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
        if error.isPassing, tryAgain(channel.place) { return true }
        expel(channel, error.systemMessage(topic: String(decoding: channel.subTopic, as: UTF8.self)))
        return false
    }

    /// Plans another attempt. Returns false after too many attempts: a channel with unknown rights has none.
    private func tryAgain(_ place: UInt32) -> Bool {
        let failures = reasking.failures[place, default: 0] + 1
        guard failures < Limits.rightsReviewTries else { return false }
        reasking.failures[place] = failures
        reasking.again.append(place)
        reasking.againAt = loop.now + Limits.bindAgainInterval.wholeNanoseconds
        return true
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
