import Glibc
import System

/// Network of a verification run with a cluster: a bridge, and a network namespace with an address for each NATS server
/// and each hub. The database and the clients' proxy are on this machine, each with an address of its own on the bridge.
///
/// A cut makes packets between two addresses vanish, in both directions, as a partition does. Nobody is told: the packets
/// go to a hardware address that nobody has. Only root may make such a network.
final class VerifyNetwork: Sendable {
    /// Place in the network: the number of its address.
    enum Node: Hashable, Sendable {
        case clients
        case database
        case server(Int)
        case hub(Int)

        fileprivate var number: Int {
            switch self {
            case .clients: 1
            case .database: 2
            case .server(let index): 11 + index
            case .hub(let index): 21 + index
            }
        }

        /// True if the node has a namespace of its own.
        fileprivate var isApart: Bool { self != .clients && self != .database }
    }

    private static let nobody = "02:00:00:00:00:99"

    private let prefix: String
    private let bridge: String
    /// Process that keeps each namespace.
    private let holders: [Node: ChildProcess]

    /// Makes the network. Returns nil if this process may not, or the program `ip` is missing.
    init?(servers: Int, hubs: Int) {
        let own = Int(getpid())
        prefix = "10.\(100 + own / 256 % 100).\(own % 256)"
        bridge = "tw\(own)"
        let nodes = (0..<servers).map { Node.server($0) } + (0..<hubs).map { Node.hub($0) }
        var holders: [Node: ChildProcess] = [:]
        for node in nodes {
            holders[node] = try? ChildProcess(
                ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--net", "--", "sleep", "infinity"],
                output: "/dev/null")
        }
        self.holders = holders
        guard geteuid() == 0, holders.count == nodes.count, make(nodes) else {
            close()
            return nil
        }
    }

    private func make(_ nodes: [Node]) -> Bool {
        let isMade =
            Self.run("ip link add \(bridge) type bridge") && Self.run("ip link set \(bridge) up")
            && Self.run("ip addr add \(address(of: .clients))/24 dev \(bridge)")
            && Self.run("ip addr add \(address(of: .database))/24 dev \(bridge)")
        guard isMade else { return false }
        return nodes.allSatisfy { node in
            guard let process = holders[node]?.processID, awaitNamespace(process) else { return false }
            let (outer, inner) = ("\(bridge)n\(node.number)", "\(bridge)p\(node.number)")
            return Self.run("ip link add \(outer) type veth peer name \(inner)")
                && Self.run("ip link set \(inner) netns \(process)")
                && Self.run("ip link set \(outer) master \(bridge)") && Self.run("ip link set \(outer) up")
                && run("ip link set lo up", in: node) && run("ip link set \(inner) name eth0", in: node)
                && run("ip link set eth0 up", in: node)
                && run("ip addr add \(address(of: node))/24 dev eth0", in: node)
        }
    }

    /// Waits until the process has a namespace of its own: `unshare` makes it after the start.
    private func awaitNamespace(_ process: pid_t) -> Bool {
        for _ in 0..<500 {
            if Self.run("test \"$(readlink /proc/\(process)/ns/net)\" != \"$(readlink /proc/self/ns/net)\"") {
                return true
            }
            Pause.milliseconds(10)
        }
        return false
    }

    func address(of node: Node) -> String { "\(prefix).\(node.number)" }

    /// Command that runs a program in a node's namespace: the words before the program.
    func entering(_ node: Node) -> [String] {
        holders[node].map { ["nsenter", "--net=/proc/\($0.processID)/ns/net", "--"] } ?? []
    }

    /// Makes packets between the nodes vanish. The database and the clients are cut off at the other end only.
    func cut(_ node: Node, from others: [Node]) { change(node, others, isCut: true) }

    func heal(_ node: Node, to others: [Node]) { change(node, others, isCut: false) }

    private func change(_ node: Node, _ others: [Node], isCut: Bool) {
        for other in others where other != node {
            for (here, there) in [(node, other), (other, node)] where here.isApart {
                let place = "\(address(of: there)) dev eth0"
                _ = run(
                    isCut ? "ip neigh replace \(place) lladdr \(Self.nobody) nud permanent" : "ip neigh del \(place)",
                    in: here)
            }
        }
    }

    func close() {
        for holder in holders.values {
            holder.signal(SIGKILL)
            holder.wait(milliseconds: 10_000)
        }
        _ = Self.run("ip link del \(bridge)")
    }

    private func run(_ command: String, in node: Node) -> Bool {
        Self.run((entering(node) + [command]).joined(separator: " "))
    }

    private static func run(_ command: String) -> Bool {
        (try? ChildProcess(["sh", "-c", command], output: "/dev/null").wait()) == .exited(0)
    }
}
