import Bytes
import Channels
import Diagnostics
import Net
import WebSocket

/// Regular pings of clients. A client's answer (a pong) acknowledges everything that the hub sent before the ping.
final class ReceiptChecks: ClientPart {
    unowned let home: ClientLoop
    private var watch = ReceiptWatch()

    init(of home: ClientLoop) { self.home = home }

    /// Starts the regular checks of acknowledgements, when the first client that may resume has joined.
    func begin() {
        guard watch.begin() else { return }
        loop.recordSent()
        awaitNext()
    }

    /// Sets the timer of the next check. The first intervals are shorter: a hub that crashes again soon after its start
    /// would otherwise send the same changes again each time.
    private func awaitNext() {
        loop.after(nanoseconds: watch.nextInterval().wholeNanoseconds, token: TimerToken.receipts.rawValue)
    }

    func areDue() {
        for case let project? in home.projects { project.returns.trackWaitingChannels() }
        for connection in loop.takeSent() + watch.takePingsDue() {
            guard let session = home.session(connection), case .client = session.stage else { continue }
            session.project?.returns.ping(session)
        }
        // The pings themselves need no acknowledgement.
        _ = loop.takeSent()
        for case let project? in home.projects { project.returns.writeReceipts() }
        awaitNext()
    }

    /// Schedules a ping of the client for the next check.
    func pingNext(_ connection: ConnectionID) { watch.pingNext(connection) }

    func ping(_ text: String, _ session: Session) {
        let payload = Array(text.utf8)
        home.output.send(to: session) { writer in FrameEncoder.appendPing(payload.rawBytes, to: &writer) }
    }

    func ponged(_ payload: RawSpan, _ session: Session) {
        guard session.receipt.awaitsPong else { return }
        session.project?.returns.ponged(payload.text, session)
    }
}

/// Schedule of the receipt checks: time until the next check, and the clients to ping in it.
struct ReceiptWatch {
    /// Clients to ping at the next check. To most of them the hub has sent more since the ping that they answered.
    private var pingsDue: [ConnectionID] = []
    private var isRunning = false
    /// Number of remaining checks at the shorter interval.
    private var early = Limits.earlyReceipts

    /// Begins the checks. Returns false if they run already.
    mutating func begin() -> Bool {
        defer { isRunning = true }
        return !isRunning
    }

    /// Returns the duration until the next check, and counts down the early checks.
    mutating func nextInterval() -> Duration {
        guard early > 0 else { return Limits.receiptInterval }
        early -= 1
        return Limits.earlyReceiptInterval
    }

    mutating func pingNext(_ connection: ConnectionID) { pingsDue.append(connection) }

    mutating func takePingsDue() -> [ConnectionID] {
        defer { pingsDue = [] }
        return pingsDue
    }
}
