import Authorizing
import Catalog
import Change
import Channels
import Delivery
import Judging
import Messages
import Net
import Policy
import Snapshots
import Synchronization
import System
import WebSocket

/// Message from another thread to a project on a socket loop.
public enum Mail: Sendable {
    /// Answer of the catalog to a question about a channel's bindings.
    case resolved(channel: UInt32, ticket: UInt64, [BindingOutcome])
    /// Answer to a question of a follower's pipeline.
    case delivery(follower: UInt32, DeliveryEvent)
    /// The catalog has a new snapshot, so that bindings may have another meaning.
    case catalogMoved
    /// Values of policy terms that depend only on a holder's claims; nil if PostgreSQL could not be asked.
    case evaluated(follower: UInt32, holder: UInt32, ticket: UInt64, [AskedTerm: AskedAnswer]?)
    /// PostgreSQL's answers to questions that fill membership sets with keys.
    case filled(follower: UInt32, [(filling: MembershipFilling, answer: MembershipFill)])
    /// PostgreSQL alone decides about the rows of some policy from now on, because it contradicted the hub.
    case demoted
    /// Broadcasts from channels of another loop.
    case broadcasts(TurnBroadcasts)
    /// Broadcasts of another loop were dropped, because this loop is too far behind.
    case broadcastsLost
    /// Presence changes of channels on another loop.
    case presence([PresenceChange])
    /// Answer about rights in a private channel.
    case authorized(ticket: UInt64, ChannelAnswer)
    /// Answer of the archive with past messages for a joining channel.
    case replayed(ticket: UInt64, ReplayAnswer)
    /// Later changes of messages that a catch-up follower has read; nil if PostgreSQL could not be asked.
    case revised(follower: UInt32, MessageRevisions?)
    /// Event of a channel's snapshot.
    case snapshot(channel: UInt32, ticket: UInt64, SnapshotEvent)
    /// The project's limits have changed.
    case limits
    /// The keys for verifying tokens have changed.
    case keys
    /// An operator has asked for the list of channels.
    case census(CensusSlip)
    /// An operator ends clients.
    case cutOff(CutOff)
}

/// Message from another thread to a socket loop.
enum LoopMail: Sendable {
    /// Clients may now connect to the project.
    case arrived(Project)
    /// The project has ended. The loop disconnects its clients and forgets it.
    case left(Project)
    /// Answer to an operator's request.
    case answered(ConnectionID, HTTPResponse)
    /// Part of an answer to an operator's request that goes on.
    case streamed(ConnectionID, WaitingClient.Part)
    /// The hub is about to stop.
    case drain
    /// The loop must disconnect the remaining clients now.
    case hurry
}

/// Queue of messages from other threads to one loop. Any thread posts; the loop takes everything at once.
///
/// The number of letters is limited by the loop's own requests: almost every letter answers one, and requests are
/// limited.
final class Mailbox<Letter: Sendable>: Sendable {
    private struct Box {
        var mail: [Letter] = []
        var bell: Wake?
    }

    private let box = Mutex(Box())

    /// Connects the queue to the loop's bell. From now on, posting wakes the loop.
    func attach(_ bell: Wake) {
        let waiting = box.withLock { box in
            box.bell = bell
            return !box.mail.isEmpty
        }
        if waiting { bell.ring() }
    }

    func post(_ mail: Letter) {
        let bell = box.withLock { box in
            box.mail.append(mail)
            return box.mail.count == 1 ? box.bell : nil
        }
        bell?.ring()
    }

    func takeAll() -> [Letter] {
        box.withLock { box in
            guard !box.mail.isEmpty else { return [] }
            let mail = box.mail
            box.mail = []
            return mail
        }
    }
}
