import Bytes
import Calling
import Console
import Settings

/// Command `tidewire cluster`: the group of commands about the cluster that a hub is a node of.
struct ClusterCommand: Command {
    let name = "cluster"
    let summary = "Show, hand over or repair a cluster: status, members, handover, repair."
    let discussion = """
        In a cluster, several hubs (nodes) have the same log, by a stream on NATS servers. One of them, the feeder, \
        holds the replication slot. status, members and handover ask a running node (--server URL); repair works on \
        the files of this machine's node.
        """
    let subcommands: [any Command] = [
        ClusterStatusCommand(), ClusterMembersCommand(), ClusterHandoverCommand(), ClusterRepairCommand(),
    ]
}

/// Node of a cluster that a command asks, and its answer.
struct AskedNode {
    let hub: AskedHub
    let members: JSONObject

    init(_ arguments: Arguments, _ terminal: Terminal) throws {
        guard let hub = try AskedHub(arguments, terminal) else {
            throw UsageError("--server URL is missing: name a node of the cluster")
        }
        self.hub = hub
        let answer = try hub.get("cluster")
        guard let data = try? JSONValue.parse(answer.body, maximumDepth: 8).object?["data"]?.object else {
            throw CommandFailure(.unreachable, "the hub's answer cannot be read", hint: "Is it of another version?")
        }
        guard data["state"]?.string != "alone" else {
            throw CommandFailure(
                .notFound, "this hub is no node of a cluster: its setting cluster is empty",
                hint: "docs/cluster.md says how hubs become a cluster.")
        }
        members = data
    }

    /// Text of a string or number; a dash if there is none.
    static func text(_ value: JSONValue?) -> String {
        switch value {
        case .string(let text)?: ScreenText.escaped(text)
        case .number(let digits)?: digits
        case .bool(let flag)?: flag ? "yes" : "no"
        default: "-"
        }
    }

    func text(_ name: String) -> String { Self.text(members[name]) }
    func string(_ name: String) -> String? { members[name]?.string }
    func list(_ name: String) -> [JSONObject] { members[name]?.array?.compactMap(\.object) ?? [] }
}

extension Option {
    fileprivate static let clusterAsking = Option.asking + [.project]
}

/// Command `tidewire cluster status`: shows the state of a node and of its cluster.
struct ClusterStatusCommand: Command {
    let name = "status"
    let summary = "Show a node: who feeds the stream, how far the node is behind, who else is there."
    let discussion = """
        Asks a node of the cluster. The state is feeding (it holds the replication slot), following, connecting (it \
        does not reach the NATS servers) or refused (its log is not one that the stream can continue; 'tidewire \
        cluster repair' on that machine says what to do). Lag is what the node's log does not have yet of the stream: \
        messages, and seconds since it last had everything. A tenure is the time for which one node feeds the stream; \
        its number is that of its first message.

        The status is 1 if the node is refused, connects, is far behind, or no node feeds the stream.

        JSON. One object: node, state, stream, server (to which the node is connected), tenure, feeder, feeding_since, \
        sequence (last message that the log has), last_sequence (last one that is known), lag_messages, lag_seconds, \
        far_behind, refusal (log_ahead, other_stream, other_log, older_than_stream, stream_missing, name_taken or \
        null), trouble, stream_leader, stream_replicas (objects: server, current, offline), stream_first_sequence, \
        stream_bytes, members (as of 'tidewire cluster members --json').
        """
    let options: [Option] = Option.clusterAsking + [.output, .json]
    let examples = [
        Example("tidewire cluster status --server https://hub1.example.com", "Is the cluster all right?"),
        Example(
            "tidewire cluster status --server https://hub1.example.com --json | jq -r .feeder",
            "Which node holds the slot?"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let node = try AskedNode(arguments, terminal)
        if arguments.has(.json) {
            try terminal.print(JSONValue.object(node.members).text)
        } else if terminal.form != .table {
            let lines = Self.lines(of: node)
            let table = TableStream(lines.map { .text($0.0.uppercased()) }, on: terminal)
            try Self.printRow(table, lines.map(\.1), terminal)
        } else {
            for (name, value) in Self.lines(of: node) {
                try terminal.print(name + String(repeating: " ", count: 14 - name.count) + value)
            }
        }
        return Self.isWell(node) ? .ok : .notFound
    }

    private static func printRow(_ table: TableStream, _ cells: [String], _ terminal: Terminal) throws {
        var table = table
        try terminal.print(heading: table)
        try terminal.print(table.line(cells))
    }

    private static func isWell(_ node: AskedNode) -> Bool {
        ["feeding", "following"].contains(node.string("state") ?? "") && node.members["far_behind"]?.bool == false
            && node.string("feeder") != nil
    }

    private static func lines(of node: AskedNode) -> [(String, String)] {
        let since = node.string("feeding_since").map { " since \(ScreenText.escaped($0))" } ?? ""
        let feeder = node.string("feeder").map { ScreenText.escaped($0) + since } ?? "nobody now"
        let isFar = node.members["far_behind"]?.bool == true ? " (far behind: clients should go to other nodes)" : ""
        let replicas = node.list("stream_replicas").map { replica in
            let state =
                replica["offline"]?.bool == true
                ? "offline" : replica["current"]?.bool == true ? "current" : "not current"
            return "\(AskedNode.text(replica["server"])) \(state)"
        }
        let copies = replicas.isEmpty ? "" : "; copies: \(replicas.joined(separator: ", "))"
        let silent = node.list("members").filter { $0["state"]?.string == "silent" }.count
        let others = node.list("members").count - 1
        let trouble = node.string("trouble").map { [("trouble", ScreenText.escaped($0))] } ?? []
        let refusal = node.string("refusal").map { refusal in
            [("refused", "\(refusal): run 'tidewire cluster repair' on the machine of this node")]
        }
        return [
            ("node", node.text("node")), ("state", node.text("state")), ("feeder", feeder),
            ("tenure", node.text("tenure")),
            ("log", "message \(node.text("sequence")) of \(node.text("last_sequence"))"),
            ("lag", "\(node.text("lag_messages")) messages, \(node.text("lag_seconds")) s\(isFar)"),
            ("stream", "\(node.text("stream")), led by \(node.text("stream_leader"))\(copies)"),
            ("server", node.text("server")),
            ("other nodes", "\(others)" + (silent > 0 ? ", \(silent) of them silent" : "")),
        ] + (refusal ?? []) + trouble
    }
}

/// Command `tidewire cluster members`: lists the nodes of a cluster.
struct ClusterMembersCommand: Command {
    let name = "members"
    let summary = "List the nodes: their state, lag, clients and last sign of life."
    let discussion = """
        Lists the nodes as the asked one knows them: itself first, then the others by name. Each node gives a sign of \
        life every second. A node without one for 8 s is silent; it stays in the list until the asked node starts \
        again.

        The status is 1 if a node is silent, refused, connecting or far behind.

        JSON. One object a node: node, state (feeding, following, connecting, refused, silent), asked (true: the node \
        that answered), sequence, lag_messages, lag_seconds, far_behind, clients (connected to that node), \
        heard_seconds (since its last sign of life).
        """
    let options: [Option] = Option.clusterAsking + [.output, .json]
    let examples = [
        Example("tidewire cluster members --server https://hub1.example.com", "Which nodes are there?"),
        Example(
            "tidewire cluster members --server https://hub1.example.com --json | jq -r 'select(.state == \"silent\") | .node'",
            "Which nodes are gone?"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let node = try AskedNode(arguments, terminal)
        let members = node.list("members")
        if arguments.has(.json) {
            for member in members { try terminal.print(JSONValue.object(member).text) }
        } else {
            try Self.show(members, terminal)
        }
        let isWell = members.allSatisfy {
            ["feeding", "following"].contains($0["state"]?.string ?? "") && $0["far_behind"]?.bool == false
        }
        return isWell ? .ok : .notFound
    }

    private static func show(_ members: [JSONObject], _ terminal: Terminal) throws {
        var table = TableStream(
            [
                .text("NODE", minimumWidth: 8), .text("STATE", minimumWidth: 10), .number("SEQUENCE", minimumWidth: 8),
                .number("LAG", minimumWidth: 5), .number("LAG S", minimumWidth: 6), .number("CLIENTS", minimumWidth: 7),
                .number("HEARD S AGO", minimumWidth: 11),
            ], on: terminal)
        try terminal.print(heading: table)
        for member in members {
            let cells = ["node", "state", "sequence", "lag_messages", "lag_seconds", "clients", "heard_seconds"].map {
                AskedNode.text(member[$0])
            }
            try terminal.print(table.line(cells))
        }
        try terminal.remark(members.count == 1 ? "1 node" : "\(members.count) nodes")
    }
}

/// Command `tidewire cluster handover`: lets the feeder of a cluster give the replication slot to another node.
struct ClusterHandoverCommand: Command {
    let name = "handover"
    let summary = "Let the node that feeds the stream give the slot up, so that another node takes it."
    let discussion = """
        Asks the feeder, with the token of an admin, to give the replication slot up in order, and waits until another \
        node has it. Changes pause for less than a second; nothing is lost. Use it before work on the feeder's \
        machine. A hub that is stopped with SIGTERM hands over by itself.

        The other nodes decide which of them takes the slot. For 10 s the node that gave it up does not take it back.

        JSON. One object: from, to, tenure (of the new feeder), seconds (until the other node had the slot).
        """
    let options: [Option] = Option.clusterAsking + [.json]
    let examples = [
        Example(
            "tidewire cluster handover --server https://hub1.example.com", "Before the machine of hub1 is upgraded:")
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let node = try AskedNode(arguments, terminal)
        guard node.string("state") == "feeding" else {
            let feeder = node.string("feeder").map { "\(ScreenText.escaped($0)) does" } ?? "no node does now"
            throw CommandFailure(
                .notFound, "node \(node.text("node")) does not hold the replication slot; \(feeder)",
                hint: "Ask the feeder: --server is the address of that node.")
        }
        let others = node.list("members").filter {
            $0["state"]?.string == "following" && $0["far_behind"]?.bool == false
        }
        guard !others.isEmpty else {
            throw CommandFailure(
                .notFound, "no other node of the cluster is there that could take the slot",
                hint: "'tidewire cluster members' shows the nodes.")
        }
        let answer = try node.hub.post("cluster/handover", Array("{}".utf8))
        guard let data = try? JSONValue.parse(answer.body, maximumDepth: 8).object?["data"]?.object else {
            throw CommandFailure(.unreachable, "the hub's answer cannot be read", hint: "Is it of another version?")
        }
        if arguments.has(.json) {
            try terminal.print(JSONValue.object(data).text)
        } else {
            try terminal.print(
                "node \(AskedNode.text(data["to"])) holds the slot now, \(AskedNode.text(data["seconds"])) s after "
                    + "\(AskedNode.text(data["from"])) was asked")
        }
        return .ok
    }
}
