import Diagnostics
import Net
import System

/// A gateway without threads of its own: whoever holds it turns its loops, one after the other. For simulations.
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

    /// Clients may come for it from now on.
    public func add(_ project: Project) {
        for mailbox in mailboxes { mailbox.post(.arrived(project)) }
        shared.directory.add(project)
    }

    /// One turn of a loop, which waits for nothing. True where there is more to do at once.
    public func step(_ loop: Int) -> Bool { loops[loop].step() }

    /// When there is something to do even if nothing happens.
    public var nextDuty: UInt64? { loops.compactMap(\.nextDuty).min() }

    /// Somebody has connected to a loop, which closes the descriptor.
    public func connected(_ descriptor: Int32, from peer: PeerAddress, to loop: Int) {
        loops[loop].connected(descriptor, from: peer)
    }

    /// Ends all connections.
    public func stop() { for loop in loops { loop.stop() } }
}
