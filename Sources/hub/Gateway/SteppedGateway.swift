import Diagnostics
import Net
import System

/// Gateway without threads, for simulations. The caller runs the turns of its loops one by one.
public final class SteppedGateway {
    private let shared: GatewayShared
    private let mailboxes: [Mailbox<LoopMail>]
    private let loops: [SteppedLoop]

    public init(_ settings: GatewaySettings, _ metrics: ProcessMetrics) throws(SystemError) {
        shared = GatewayShared(settings, metrics)
        var mailboxes: [Mailbox<LoopMail>] = []
        var loops: [SteppedLoop] = []
        for index in 0..<settings.sockets.loopCount {
            mailboxes.append(Mailbox<LoopMail>())
            let clients = ClientLoop(shared, mailboxes[index], number: index)
            loops.append(try SteppedLoop(settings.sockets, index: index, application: clients, metrics: metrics))
        }
        self.mailboxes = mailboxes
        self.loops = loops
    }

    public var loopCount: Int { loops.count }

    public func budgets() -> ProjectBudgets { shared.budgets() }

    /// Adds a project. Clients may connect to it from now on.
    public func add(_ project: Project) {
        for mailbox in mailboxes { mailbox.post(.arrived(project)) }
        shared.directory.add(project)
    }

    /// Runs one turn of a loop without waiting. Returns true if there is more to do immediately.
    public func step(_ loop: Int) -> Bool { loops[loop].step() }

    /// Monotonic time in nanoseconds at which a loop next has work without an event; nil if none has.
    public var nextDuty: UInt64? { loops.compactMap(\.nextDuty).min() }

    /// Passes a new connection to a loop, which will close the descriptor.
    public func connected(_ descriptor: Int32, from peer: PeerAddress, to loop: Int) {
        loops[loop].connected(descriptor, from: peer)
    }

    /// Ends all connections.
    public func stop() { for loop in loops { loop.stop() } }
}
