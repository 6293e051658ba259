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

/// What other threads tell a project on a socket loop.
public enum Mail: Sendable {
    /// The catalog's answer to what a channel asked.
    case resolved(channel: UInt32, ticket: UInt64, [BindingOutcome])
    /// What delivery asked for.
    case delivery(follower: UInt32, DeliveryEvent)
    /// The catalog is another now: bindings may mean something else.
    case catalogMoved
    /// What terms that speak of a holder's claims alone came to; nil when PostgreSQL could not be asked.
    case evaluated(follower: UInt32, holder: UInt32, ticket: UInt64, [AskedTerm: AskedAnswer]?)
    /// The keys of memberships.
    case filled(follower: UInt32, [(filling: MembershipFilling, answer: MembershipFill)])
    /// A policy is left to PostgreSQL from here on.
    case demoted
    /// What channels of another loop said.
    case broadcasts(TurnBroadcasts)
    /// There were too many of them.
    case broadcastsLost
    /// Who came and went there.
    case presence([PresenceChange])
    /// What somebody may do in a private channel.
    case authorized(ticket: UInt64, ChannelAnswer)
    /// What the log has for who joins.
    case replayed(ticket: UInt64, ReplayAnswer)
    /// Of the rows that a channel is told first.
    case snapshot(channel: UInt32, ticket: UInt64, SnapshotEvent)
    /// Other limits are in force.
    case limits
    /// Other keys are in force for tokens.
    case keys
    /// An operator wants to know which channels there are.
    case census(CensusSlip)
}

/// What other threads tell a socket loop.
enum LoopMail: Sendable {
    /// Clients may come for it.
    case arrived(Project)
    /// Its clients are to be sent away, and it is forgotten.
    case left(Project)
    /// What an operator asked for was done.
    case answered(ConnectionID, HTTPResponse)
    /// The hub is about to end.
    case drain
    /// Those that are still to be sent away go now.
    case hurry
}

/// Letters for one loop: any thread posts, the loop takes all at once.
///
/// It is as large as the loops' own requests make it: every letter but a few answers one of them, and those are bounded.
final class Mailbox<Letter: Sendable>: Sendable {
    private struct Box {
        var mail: [Letter] = []
        var bell: Wake?
    }

    private let box = Mutex(Box())

    /// From here on posting wakes the loop.
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
