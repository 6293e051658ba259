import Bytes
import Calling
import Console
import Diagnostics
import Projects
import Settings

/// Command `tidewire kick`: disconnects clients of a running hub, and blocks them for a time.
struct KickCommand: Command {
    let name = "kick"
    let summary = "Cut off the clients of a user or a session, and block them for a time."
    let discussion = """
        Asks a running hub (--server URL, with the token of an admin) to end all channels and sockets of a user: the \
        claim sub. Each channel is told why with the code CutOff, or Blocked, and each socket ends with 1008. Clients \
        come back by themselves, at once, unless --for blocks the user for a time. Until then the hub refuses all \
        tokens of that user, also for broadcasts and changes over HTTP: code Blocked, status 403.

        --session ends one socket (its number is in 'tidewire subs' and 'tidewire session'); with --for it blocks the \
        login of that socket: the claim session_id of its token. --login names such a login itself.

        A block survives restarts of the hub. A hub keeps at most 10,000 for each project and then refuses more; it \
        never forgets one before its end. --list shows the blocks, --undo ends one. The hub's audit has who did this \
        and the reason (--because).

        JSON. One object: sockets, channels (that were ended), loops_without_answer (threads of the hub that were too \
        busy to answer in time; they carry it out later), until (end of the block, or null). --list: one object a \
        block: kind (user or login), name, until, operator, reason.
        """
    let operands = [Operand("USER", .any, "The user's id: the claim sub.")]
    let options: [Option] =
        Option.asking + [.session, .login, .blockLength, .kickReason, .undo, .list, .project, .output, .json]
    let examples = [
        Example(
            "tidewire kick 7f3c2b1e-0c5d-4f6e-8a52-000000000001 --for 1h --because \"ticket 17\" --server "
                + "https://hub.example.com", "Somebody uses a stolen token:"),
        Example("tidewire kick --session 0189a3f2c4d5e600 --server https://hub.example.com", "One client is stuck:"),
        Example("tidewire kick --list --server https://hub.example.com", "Who is blocked?"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        guard let hub = try AskedHub(arguments, terminal) else {
            throw UsageError("--server URL is missing: name the hub")
        }
        if arguments.has(.list) {
            guard arguments.operands.isEmpty else { throw UsageError("--list lists all blocks") }
            return try list(hub, arguments, terminal)
        }
        let target = try target(arguments)
        if arguments.has(.undo) {
            guard target.kind != "session" else { throw UsageError("--undo goes with USER or --login") }
            _ = try hub.delete("blocks?\(target.kind)=\(PercentText.encoded(target.name))", success: 204)
            try terminal.remark("\(target.name) is not blocked any more")
            return .ok
        }
        var body = JSONLine()
        body.add(target.kind, target.name)
        if case .duration(let wanted) = try arguments.value(
            of: .blockLength, as: .duration(Duration.seconds(1)...OperatorKick.longestBlock))
        {
            body.add("seconds", json: String(wanted.wholeSeconds))
        }
        if let reason = arguments.value(of: .kickReason) { body.add("because", reason) }
        let answer = try hub.post("kick", Array(body.text.utf8))
        guard let text = HubJSON(answer.body)?.members["data"], let data = HubJSON(Array(text.utf8)) else {
            throw CommandFailure(.unreachable, "the hub's answer cannot be read", hint: "Is it of another version?")
        }
        try terminal.print(arguments.has(.json) ? data.text : Self.sentence(data.members))
        return data.members["sockets"] == "0" && data.members["until"] == nil ? .notFound : .ok
    }

    /// Returns whom the command disconnects or blocks: a user, a socket's session or a login, with its id.
    private func target(_ arguments: Arguments) throws(UsageError) -> (kind: String, name: String) {
        var given = arguments.operands.map { ("user", $0) }
        if let login = arguments.value(of: .login) { given.append(("login", login)) }
        if let session = arguments.value(of: .session) { given.append(("session", session)) }
        guard given.count == 1 else { throw UsageError("expected one USER, or --session ID, or --login ID") }
        return given[0]
    }

    /// Returns the sentence about the hub's answer.
    private static func sentence(_ members: [String: String]) -> String {
        let sockets = members["sockets"] ?? "?"
        let ended = "\(sockets) \(sockets == "1" ? "socket" : "sockets") ended"
        let missing = members["loops_without_answer"] ?? "0"
        return ended + (members["until"].map { ", blocked until \($0)" } ?? "")
            + (missing == "0" ? "" : "; \(missing) of the hub's threads have not answered yet")
    }

    private func list(_ hub: AskedHub, _ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        guard let answer = HubJSON(try hub.get("blocks").body) else {
            throw CommandFailure(.unreachable, "the hub's answer cannot be read", hint: "Is it of another version?")
        }
        if arguments.has(.json) {
            for row in answer.rows { try terminal.print(row.text) }
        } else {
            let table = TableStream(
                [
                    .text("KIND", minimumWidth: 5), .text("NAME", minimumWidth: 12), .text("UNTIL", minimumWidth: 20),
                    .text("OPERATOR", minimumWidth: 8),
                    .text("REASON", canBeCut: terminal.isInteractive, minimumWidth: 8),
                ], on: terminal)
            try Self.show(answer.rows, table, terminal)
        }
        return answer.rows.isEmpty ? .notFound : .ok
    }

    private static func show(_ rows: [HubJSON], _ table: TableStream, _ terminal: Terminal) throws {
        var table = table
        if !rows.isEmpty { try terminal.print(heading: table) }
        for row in rows {
            let cells = ["kind", "name", "until", "operator", "reason"].map { name in
                ScreenText.escaped(row.members[name] ?? "-")
            }
            try terminal.print(table.line(cells))
        }
        try terminal.remark(rows.count == 1 ? "1 block" : "\(rows.count) blocks")
    }
}

extension Option {
    fileprivate static let session = Option.value("session", "ID", "End this socket, instead of all of a user.")
    fileprivate static let login = Option.value("login", "ID", "The claim session_id of a token, instead of a user.")
    fileprivate static let blockLength = Option.value(
        "for", "DURATION", "Block for this time, such as 10min or 1d; at most a year.")
    fileprivate static let kickReason = Option.value("because", "TEXT", "The reason, for the hub's audit.")
    fileprivate static let undo = Option.flag("undo", "End the block of USER or --login.")
    fileprivate static let list = Option.flag("list", "Show the blocks.")
}
