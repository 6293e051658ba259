import Auth
import Bytes
import Diagnostics
import Net
import Protocol
import Synchronization
import System
import WebSocket

/// Order of an operator to end the clients of a target, for all loops of a project.
public final class CutOff: Sendable {
    /// Clients that were ended.
    public struct Tally: Sendable, Equatable {
        public var sockets = 0
        public var channels = 0
        /// Login sessions of the sockets that were ended, for an order that names a socket.
        public var logins: Set<String> = []
        /// Users of the sockets that were ended.
        public var users: Set<String> = []
        /// Loops that have not carried the order out yet.
        public var loopsMissing = 0

        public init() {}
    }

    let target: CutOffTarget
    /// Message for the clients.
    let message: ClientText
    private let tally: Mutex<Tally>
    private let pulse = Pulse()

    init(_ target: CutOffTarget, _ message: ClientText, loops: Int) {
        (self.target, self.message) = (target, message)
        var begun = Tally()
        begun.loopsMissing = loops
        tally = Mutex(begun)
    }

    /// Ends the clients of the target, and returns how many there were, or were within the time.
    ///
    /// - Parameter isBlocked: true if they are blocked, so that they do not come back at once.
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
    /// Ends the clients of the order's target: first their channels, each with the message, then their sockets.
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
