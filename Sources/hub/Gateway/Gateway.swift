import Diagnostics
import Net
import Synchronization
import System

/// The clients' side of the hub: sockets, and the projects that are served on them.
public final class Gateway: Sendable {
    private let shared: GatewayShared
    private let mailboxes: [Mailbox<LoopMail>]
    private let sockets: SocketServer

    /// Listens when it returns; whoever comes before it is open is told to come again.
    public init(_ settings: GatewaySettings, _ metrics: ProcessMetrics, rehearsal: Rehearsal? = nil) throws {
        let shared = GatewayShared(settings, metrics)
        let mailboxes = (0..<settings.sockets.loopCount).map { _ in Mailbox<LoopMail>() }
        self.shared = shared
        self.mailboxes = mailboxes
        sockets = try SocketServer(settings.sockets, metrics: metrics) { index in
            let clients = ClientLoop(shared, mailboxes[index], number: index)
            return rehearsal.map { RehearsalLoop($0, clients) } ?? clients
        }
    }

    public var port: UInt16 { sockets.port }
    public var addresses: [SocketAddress] { sockets.addresses }
    public var loopCount: Int { mailboxes.count }
    public var metrics: ProcessMetrics { shared.metrics }

    /// For a project, its half of what all clients may take.
    public func budgets() -> ProjectBudgets { shared.budgets() }

    /// The projects that are known from the start were added: whoever means another means none, and operators' requests
    /// are answered.
    public func open(_ operators: any Operators) {
        shared.operators = operators
        let addresses = sockets.addresses.map(\.description).joined(separator: ", ")
        Log.shared.info("listening", [.address(addresses), .count(mailboxes.count)])
    }

    // MARK: Projects

    /// Clients may come for it from now on.
    public func add(_ project: Project) {
        for mailbox in mailboxes { mailbox.post(.arrived(project)) }
        shared.directory.add(project)
    }

    /// Announces names of known projects that do not run. Clients are told so, and never reach another project.
    public func announce(_ names: [String], _ absence: ProjectAbsence) { shared.directory.announce(names, absence) }

    /// Remembers names of deleted projects, so that no other project answers for them.
    public func remember(deleted names: [String]) { shared.directory.remember(deleted: names) }

    /// Removes the project and sends its clients away. A client that comes back is told that the project is stopping. Returns
    /// when no loop knows of the project any more.
    public func remove(_ project: Project) {
        shared.directory.remove(project)
        for mailbox in mailboxes { mailbox.post(.left(project)) }
        project.waitUntilLeft()
    }

    /// The certificate as its files are now.
    public func reloadTLS() throws { try sockets.reloadTLS() }

    /// Sends all clients away, and waits a while until they are gone.
    ///
    /// - Parameter isToHurry: asked meanwhile; once it says so, all that are still here are sent away at once.
    public func drain(unless isToHurry: () -> Bool = { false }) {
        sockets.stopAccepting()
        for mailbox in mailboxes { mailbox.post(.drain) }
        var isHurried = false
        wait(shared.settings.drainTime + Limits.drainLimit) {
            if !isHurried, isToHurry() {
                isHurried = true
                for mailbox in mailboxes { mailbox.post(.hurry) }
            }
            return shared.saidFarewell.load(ordering: .acquiring) == mailboxes.count
        }
        // What was sent to them is on its way; who was told to hurry waits for nobody's answer.
        wait(isHurried ? Limits.hurriedDrainLimit : Limits.drainLimit) {
            metrics.sessions.value == 0 || !isHurried && isToHurry()
        }
    }

    private func wait(_ time: Duration, until isDone: () -> Bool) {
        let deadline = Clock.monotonicNanoseconds() + time.wholeNanoseconds
        while !isDone(), Clock.monotonicNanoseconds() < deadline { BackgroundThread.rest(nanoseconds: 10_000_000) }
    }

    /// After it no loop runs any more.
    public func stop() {
        sockets.stop()
        shared.operators = nil
    }
}
