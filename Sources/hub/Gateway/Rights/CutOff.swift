import Auth
import Bytes
import Diagnostics
import Net
import Protocol
import Synchronization
import System
import WebSocket

/// Order of an operator to disconnect the clients of a target. All loops of a project get it.
public final class CutOff: Sendable {
    /// Counts of the clients that an order disconnected.
    public struct Tally: Sendable, Equatable {
        public var sockets = 0
        public var channels = 0
        /// Login ids (claim `session_id`) of the disconnected sockets. An order that names a socket needs them to block
        /// its login.
        public var logins: Set<String> = []
        /// User ids (claim `sub`) of the disconnected sockets.
        public var users: Set<String> = []
        /// Number of loops that have not carried out the order yet.
        public var loopsMissing = 0

        public init() {}
    }

    let target: CutOffTarget
    /// Message that the clients receive before they are disconnected.
    let message: ClientText
    private let tally: Mutex<Tally>
    private let pulse = Pulse()

    init(_ target: CutOffTarget, _ message: ClientText, loops: Int) {
        (self.target, self.message) = (target, message)
        var begun = Tally()
        begun.loopsMissing = loops
        tally = Mutex(begun)
    }

    /// Disconnects the clients of the target. Returns their counts when all loops are done, or after `patience`.
    ///
    /// - Parameter isBlocked: true if the target is blocked, so that the clients cannot reconnect.
    public static func carryOut(
        _ target: CutOffTarget, isBlocked: Bool, in project: Project, waiting patience: Duration
    ) -> Tally {
        let message =
            isBlocked
            ? ClientText(.blocked, "An operator blocked this user for a time")
            : ClientText(.cutOff, "An operator ended this connection")
        let order = CutOff(target, message, loops: project.mailboxes.count)
        project.post(.cutOff(order))
        return order.wait(patience)
    }

    /// Adds the counts of one loop, which has carried out the order.
    func add(_ part: Tally) {
        tally.withLock { tally in
            tally.sockets += part.sockets
            tally.channels += part.channels
            tally.logins.formUnion(part.logins)
            tally.users.formUnion(part.users)
            tally.loopsMissing -= 1
            assert(tally.loopsMissing >= 0, "a loop carries an order out once")
        }
        pulse.beat()
    }

    /// Waits until all loops have carried out the order, for at most `patience`, and returns the counts.
    private func wait(_ patience: Duration) -> Tally {
        let deadline = Clock.monotonicNanoseconds() + patience.wholeNanoseconds
        var seen: UInt64 = 0
        while true {
            let tally = tally.withLock { $0 }
            if tally.loopsMissing == 0 || Clock.monotonicNanoseconds() >= deadline { return tally }
            seen = pulse.wait(beyond: seen, untilMonotonic: deadline)
        }
    }
}

extension ProjectLoop {
    /// Disconnects this loop's clients that are in the order's target: first their channels, each with the message,
    /// then their sockets.
    func carryOut(_ order: CutOff) {
        var tally = CutOff.Tally()
        var ended: [Session] = []
        for place in channels.indices {
            guard let channel = channels[place] else { continue }
            guard order.fits(channel.session) || order.target.fits(channel.claims) else { continue }
            let session = channel.session
            if !ended.contains(where: { $0 === session }) { ended.append(session) }
            tally.channels += 1
            tally.note(channel.claims)
            if channel.join.isAnswered {
                expel(channel, order.message)
            } else {
                joins.take(.refused("\(order.message.code.rawValue): \(order.message.text)"), channel)
            }
        }
        for case let session? in clients.sessions where session.project === self {
            let isOfTarget = order.fits(session) || session.terms.claims.map { order.target.fits($0) } ?? false
            guard isOfTarget || ended.contains(where: { $0 === session }) else { continue }
            tally.sockets += 1
            if isOfTarget, let claims = session.terms.claims { tally.note(claims) }
            clients.say(.policyViolation, order.message.text, to: session)
        }
        order.add(tally)
    }
}

extension CutOff {
    fileprivate func fits(_ session: Session) -> Bool {
        guard case .socket(let number) = target else { return false }
        return number != 0 && session.ledgerNumber == number
    }
}

extension CutOff.Tally {
    fileprivate mutating func note(_ claims: Claims) {
        if let login = claims.sessionID { logins.insert(login) }
        let user = claims.subject.text
        if !user.isEmpty { users.insert(user) }
    }
}
