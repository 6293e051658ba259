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

/// Mail from other threads to a project on a socket loop.
public enum Mail: Sendable {
    /// Answer of the catalog to a channel's question.
    case resolved(channel: UInt32, ticket: UInt64, [BindingOutcome])
    /// Answer to a question of a follower's pipeline.
    case delivery(follower: UInt32, DeliveryEvent)
    /// The catalog has changed, so that bindings may have another meaning.
    case catalogMoved
    /// Values of terms that depend only on a holder's claims; nil if PostgreSQL could not be asked.
    case evaluated(follower: UInt32, holder: UInt32, ticket: UInt64, [AskedTerm: AskedAnswer]?)
    /// Keys of memberships.
    case filled(follower: UInt32, [(filling: MembershipFilling, answer: MembershipFill)])
    /// PostgreSQL decides on a policy from here on.
    case demoted
    /// Broadcasts from channels of another loop.
    case broadcasts(TurnBroadcasts)
    /// Broadcasts of another loop were dropped, because this loop is too far behind.
    case broadcastsLost
    /// Presence changes on another loop.
    case presence([PresenceChange])
    /// Answer about rights in a private channel.
    case authorized(ticket: UInt64, ChannelAnswer)
    /// Past messages for a joining channel.
    case replayed(ticket: UInt64, ReplayAnswer)
    /// Fates of messages that a follower of the past met; nil if nobody could be asked.
    case revised(follower: UInt32, MessageRevisions?)
    /// Event of a channel's snapshot.
    case snapshot(channel: UInt32, ticket: UInt64, SnapshotEvent)
    /// The project's limits have changed.
    case limits
    /// The keys for tokens have changed.
    case keys
    /// An operator asks for the list of channels.
    case census(CensusSlip)
}

/// Mail from other threads to a socket loop.
enum LoopMail: Sendable {
    /// Clients may connect to the project.
    case arrived(Project)
    /// The project has ended. The loop sends its clients away and forgets it.
    case left(Project)
    /// Answer to an operator's request.
    case answered(ConnectionID, HTTPResponse)
    /// The hub is about to stop.
    case drain
    /// The remaining clients are to be sent away now.
    case hurry
}

/// Mail for one loop. Any thread posts; the loop takes all mail at once.
///
/// The loops' own requests bound the size of a mailbox: all letters except a few answer such a request, and requests
/// are limited.
final class Mailbox<Letter: Sendable>: Sendable {
    private struct Box {
        var mail: [Letter] = []
        var bell: Wake?
    }

    private let box = Mutex(Box())

    /// Connects the mailbox to the loop. From here on, posting wakes the loop.
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
