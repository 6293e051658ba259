import Diagnostics
import Net
import Synchronization
import WebSocket

/// Shutdown of the loop's service. The loop refuses new clients and joins, and disconnects its clients gradually.
final class Farewells: ClientPart {
    unowned let home: ClientLoop
    private(set) var haveBegun = false
    private var queue: DrainQueue?

    init(of home: ClientLoop) { self.home = home }

    func begin() {
        haveBegun = true
        var clients: [ConnectionID] = []
        for case let session? in home.sessions {
            switch session.stage {
            case .client, .feed: clients.append(session.connection)
            default: sendAway(session)
            }
        }
        var chance = SystemRandomNumberGenerator()
        queue = DrainQueue(clients, within: shared.settings.drainTime, from: loop.now, using: &chance)
        areDue()
    }

    /// Disconnects all remaining clients now. The next timer ends the drain.
    func hurry() { sendAway(queue?.takeAll() ?? []) }

    func areDue() {
        sendAway(queue?.takeDue(loop.now) ?? [])
        guard queue?.isOver == false else { return _ = shared.saidFarewell.add(1, ordering: .releasing) }
        loop.after(nanoseconds: Limits.farewellInterval.wholeNanoseconds, token: TimerToken.farewells.rawValue)
    }

    private func sendAway(_ connections: [ConnectionID]) {
        for connection in connections {
            if let session = home.session(connection) { sendAway(session) }
        }
    }

    private func sendAway(_ session: Session) { home.say(.serviceRestart, "the server restarts", to: session) }
}
