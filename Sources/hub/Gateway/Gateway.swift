import Diagnostics
import Net
import Pages
import Synchronization
import System

/// Client side of the hub: sockets, and the projects whose clients they serve.
public final class Gateway: Sendable {
    private let shared: GatewayShared
    private let mailboxes: [Mailbox<LoopMail>]
    private let sockets: SocketServer
    /// Writer of the list of ended sessions of the web console; nil without a console.
    private let consoleWriter: BackgroundWriter?

    /// Begins to listen. Until `open` is called, the hub asks clients to connect again later.
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
        consoleWriter = settings.console == nil ? nil : BackgroundWriter("console")
        if let console = settings.console {
            try consoleWriter?.start { console.keepSignedOut() }
            console.callOnSignOut { [consoleWriter] in consoleWriter?.wake() }
        }
    }

    public var port: UInt16 { sockets.port }
    public var addresses: [SocketAddress] { sockets.addresses }
    public var loopCount: Int { mailboxes.count }
    public var metrics: ProcessMetrics { shared.metrics }

    /// Returns the budgets of one project, which are at most half of those of the hub.
    public func budgets() -> ProjectBudgets { shared.budgets() }

    /// Opens the gateway, after the known projects were added. From now on, the hub refuses clients of unknown projects
    /// and answers operators' requests.
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

    /// Records that known projects do not run, and why. The hub then tells this to their clients, and no other project
    /// serves them.
    public func announce(_ names: [String], _ absence: ProjectAbsence) { shared.directory.announce(names, absence) }

    /// Records names of deleted projects, so that no other project serves their clients.
    public func remember(deleted names: [String]) { shared.directory.remember(deleted: names) }

    /// Removes the project and disconnects its clients. The hub tells a client that reconnects that the project is
    /// stopping. Returns when all loops have forgotten the project.
    public func remove(_ project: Project) {
        shared.directory.remove(project)
        for mailbox in mailboxes { mailbox.post(.left(project)) }
        project.waitUntilLeft()
    }

    /// Reads the files of the TLS certificate again.
    public func reloadTLS() throws { try sockets.reloadTLS() }

    /// Disconnects all clients, one after the other, and waits for a limited time until they are gone.
    ///
    /// - Parameter isToHurry: called repeatedly. Once it returns true, all remaining clients are disconnected
    ///   immediately.
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
        // All close frames have been sent. If the hub hurries, it waits less for the clients' answers.
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
        consoleWriter?.stop()
        shared.operators = nil
    }
}
