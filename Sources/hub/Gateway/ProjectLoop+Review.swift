import Authorizing
import Bytes
import Catalog
import Channels
import Diagnostics
import Net

/// Private channels whose rights to read are asked for again, because the rules changed: how far that has come.
struct RightsReview {
    /// What the channels were let in by, as far as it is known.
    fileprivate var rules: String?
    /// The next channel's place; nil when all were asked about.
    fileprivate var next: UInt32?
    /// Questions that are under way.
    fileprivate var asked = 0
    /// Places of channels about which nothing could be found out, to be asked about again at a later moment.
    fileprivate var again: [UInt32] = []
    fileprivate var againAt: UInt64 = 0
    /// How often that was so.
    fileprivate var failures: [UInt32: Int] = [:]

    mutating func isAnswered() { asked -= 1 }
}

/// Policies of `realtime.messages` that change count for channels that are joined already.
extension ProjectLoop {
    /// A new snapshot: if the rules are others, all private channels are asked about, a few at a time.
    func reviewRights(_ snapshot: CatalogSnapshot) {
        let known = reasking.rules
        reasking.rules = snapshot.messageRules
        // Who joined before the catalog was read for the first time was let in by PostgreSQL itself a moment ago.
        guard known != nil, known != snapshot.messageRules else { return }
        reasking.next = 0
        reasking.again = []
        reasking.failures = [:]
    }

    /// Only a few questions are under way at any time, so that others' joins are not kept waiting.
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

    /// Who waits for an answer already, which may be by the old rules, has the same question asked again.
    private func review(_ channel: Channel) {
        let ticket = channel.conversation.detailed().readTicket
        if case .read(_, let occasion)? = rightsWaiting[ticket], !occasion.isReview {
            return askReadRights(channel, occasion)
        }
        reasking.asked += 1
        askReadRights(channel, .review)
    }

    /// Rights that are lost end the channel, as they do with a token that has less.
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

    /// Nothing could be found out: it is asked again, or, where that does not help, sent away.
    func isReviewedLater(_ channel: Channel, _ error: ChannelAuthorizationError) -> Bool {
        if error.isPassing, tryAgain(channel.place) { return true }
        expel(channel, error.systemMessage(topic: String(decoding: channel.subTopic, as: UTF8.self)))
        return false
    }

    /// False where that was done often enough: whose rights nobody knows has none.
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
    /// It says nothing of the rules.
    fileprivate var isPassing: Bool {
        switch self {
        case .policy, .role: false
        case .canceled, .missingPartition, .unprepared, .unavailable, .initializing, .tooManyConnections, .exhausted:
            true
        }
    }
}
