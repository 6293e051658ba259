import Diagnostics
import Net
import Synchronization
import System

/// Client side of the hub: sockets, and the projects that they serve.
public final class Gateway: Sendable {
    private let shared: GatewayShared
    private let mailboxes: [Mailbox<LoopMail>]
    private let sockets: SocketServer

    /// Starts listening. Clients that come before `open` are told to come again.
    public init(
        _ settings: GatewaySettings, _ metrics: ProcessMetrics, inProcessClients: InProcessClients? = nil
    ) throws {
        let shared = GatewayShared(settings, metrics)
        let mailboxes = (0..<settings.sockets.loopCount).map { _ in Mailbox<LoopMail>() }
        self.shared = shared
        self.mailboxes = mailboxes
        sockets = try SocketServer(settings.sockets, metrics: metrics) { index in
            let clients = ClientLoop(shared, mailboxes[index], number: index)
            return inProcessClients.map { RehearsalLoop($0, clients) } ?? clients
        }
    }

    public var port: UInt16 { sockets.port }
    public var addresses: [SocketAddress] { sockets.addresses }
    public var loopCount: Int { mailboxes.count }
    public var metrics: ProcessMetrics { shared.metrics }

    /// Returns a project's budgets. One project may use at most half of what all clients together may use.
    public func budgets() -> ProjectBudgets { shared.budgets() }

    /// Opens the gateway after the known projects were added. From here on, unknown projects are refused, and
    /// operators' requests are answered.
    public func open(_ operators: any Operators) {
        shared.operators = operators
        let addresses = sockets.addresses.map(\.description).joined(separator: ", ")
        Log.shared.info("listening", [.address(addresses), .count(mailboxes.count)])
    }

    // MARK: Projects

    /// Adds a project. Clients may connect to it from now on.
    public func add(_ project: Project) {
        for mailbox in mailboxes { mailbox.post(.arrived(project)) }
        shared.directory.add(project)
    }

    /// Announces names of known projects that do not run. Clients are told so, and never reach another project.
    public func announce(_ names: [String], _ absence: ProjectAbsence) { shared.directory.announce(names, absence) }

    /// Remembers names of deleted projects, so that no other project answers for them.
    public func remember(deleted names: [String]) { shared.directory.remember(deleted: names) }

    /// Removes the project and sends its clients away. A client that comes back is told that the project is stopping.
    /// Returns when no loop knows of the project any more.
    public func remove(_ project: Project) {
        shared.directory.remove(project)
        for mailbox in mailboxes { mailbox.post(.left(project)) }
        project.waitUntilLeft()
    }

    /// Reads the certificate's files again.
    public func reloadTLS() throws { try sockets.reloadTLS() }

    /// Sends all clients away, and waits for a limited time until they are gone.
    ///
    /// - Parameter isToHurry: asked repeatedly; once it returns true, all remaining clients are sent away at once.
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
        // The farewells are on their way. After a hurry, the hub does not wait for the clients' answers.
        wait(isHurried ? Limits.hurriedDrainLimit : Limits.drainLimit) {
            metrics.sessions.value == 0 || !isHurried && isToHurry()
        }
    }

    private func wait(_ time: Duration, until isDone: () -> Bool) {
        let deadline = Clock.monotonicNanoseconds() + time.wholeNanoseconds
        while !isDone(), Clock.monotonicNanoseconds() < deadline { BackgroundThread.rest(nanoseconds: 10_000_000) }
    }

    /// Stops all loops. No loop runs after this call.
    public func stop() {
        sockets.stop()
        shared.operators = nil
    }
}
