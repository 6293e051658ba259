import Bytes
import Channels
import Diagnostics
import Net
import WebSocket

/// Refused joins, and the pauses before their replies.
final class JoinRefusals: ClientPart {
    unowned let home: ClientLoop
    private var waiting = Slots<Refusal>()

    init(of home: ClientLoop) { self.home = home }

    /// Refuses a join. The hub answers the first refused joins of a socket without a pause, because a person who
    /// mistyped something may be waiting. It answers later ones after a pause, because clients retry immediately and
    /// without end. The pause includes the nanoseconds that the join has already waited (`waited`).
    func refuse(_ id: ChannelID, _ reason: String, _ session: Session, waited: UInt64 = 0) {
        session.metrics?.channelEvents[.refused].add()
        session.project?.project.reference.addError(reason)
        let refusal = Refusal.join(session.connection, id, reason)
        if isAmongTheFirst(of: session) { tell(refusal) } else { later(refusal, session, waited: waited) }
    }

    private func isAmongTheFirst(of session: Session) -> Bool {
        guard session.use.promptRefusals < Limits.promptRefusalsPerSocket else { return false }
        session.use.promptRefusals += 1
        return true
    }

    func refuseLater(_ address: ChannelAddress, _ reason: String, _ session: Session) {
        session.metrics?.channelEvents[.refused].add()
        guard session.use.surplusJoins < Limits.maximumSurplusJoins else {
            return home.say(.policyViolation, "too many joins beyond the number of channels", to: session)
        }
        session.use.surplusJoins += 1
        let refusal = Refusal.surplus(session.connection, address, reason)
        if isAmongTheFirst(of: session) { tell(refusal) } else { later(refusal, session) }
    }

    /// Refusal to send after a pause.
    private enum Refusal {
        case join(ConnectionID, ChannelID, String)
        case surplus(ConnectionID, ChannelAddress, String)
    }

    private func later(_ refusal: Refusal, _ session: Session, waited: UInt64 = 0) {
        guard waiting.count < Limits.maximumRefusalsPerLoop else {
            return home.say(.tryAgainLater, "too many joins are refused", to: session)
        }
        let place = waiting.add(refusal)
        let pause = shared.settings.joinErrorDelay.wholeNanoseconds
        loop.after(nanoseconds: pause - min(pause, waited), token: TimerToken.refusal(place).rawValue)
    }

    func isDue(_ place: UInt32) {
        assert(waiting.contains(place), "a refusal waits until its timer ends")
        if let refusal = waiting.remove(place) { tell(refusal) }
    }

    private func tell(_ refusal: Refusal) {
        switch refusal {
        case .join(let connection, let id, let reason):
            guard let session = home.session(connection) else { return }
            var actions: [ChannelAction] = []
            session.machine?.joinFailed(id, reason: reason, into: &actions)
            home.perform(actions, for: session)
        case .surplus(let connection, let address, let reason):
            guard let session = home.session(connection) else { return }
            assert(session.use.surplusJoins > 0, "a refusal is sent once for each surplus join")
            session.use.surplusJoins -= 1
            home.output.sendMessage(to: session) { encoder, writer in
                encoder.appendErrorReply(reason, address, to: &writer)
            }
        }
    }
}
