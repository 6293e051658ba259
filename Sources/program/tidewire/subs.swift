import Bytes
import Calling
import Console
import Diagnostics
import Settings

/// Command `tidewire subs`: lists the channels that clients of a running hub have joined.
struct SubscriptionsCommand: Command {
    let name = "subs"
    let summary = "Show the subscribers of a running hub, what each listens to, and how far behind each is."
    let discussion = """
        Asks a hub which channels its clients have joined. Shows for each channel the user and role, its bindings, the \
        offset up to which the hub has sent it everything, how many changes and seconds that is behind the log's end, \
        and how many bytes wait for its socket. The channels that are furthest behind come first. 'tidewire session' \
        shows what happened to each before.

        --lagging shows only channels that are behind by at least that time. It ends with status 0 if there are some, \
        and 1 if there are none.

        JSON. One object a channel: topic, session, channel, role, user, private, bindings, position (null: its join \
        is not answered yet), lag (changes), lag_seconds (null if not computed, where there are many positions), \
        queued_bytes, slow.
        """
    let options: [Option] = Option.asking + [.project, .lagging, .output, .json]
    let examples = [
        Example("tidewire subs --server https://hub.example.com", "Who is connected?"),
        Example(
            "tidewire subs --server http://127.0.0.1:4000 --lagging 5s",
            "Which clients are late, because of the hub or the network?"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        var least = Duration.zero
        if case .duration(let wanted) = try arguments.value(
            of: .lagging, as: .duration(.zero...Duration.seconds(86_400)))
        {
            least = wanted
        }
        guard let hub = try AskedHub(arguments, terminal) else {
            throw UsageError("--server URL is missing: name the hub")
        }
        let answer = try hub.get("channels")
        guard let census = ReadCensus(answer.body) else {
            throw CommandFailure(.unreachable, "the hub's answer cannot be read", hint: "Is it of another version?")
        }
        let seconds = Double(least.wholeMilliseconds) / 1000
        let shown = census.channels.filter { least == .zero || ($0.lagSeconds ?? 0) >= seconds }
        if arguments.has(.json) {
            for channel in shown { try terminal.print(channel.json) }
        } else {
            try show(shown, census, terminal)
        }
        return shown.isEmpty ? .notFound : .ok
    }

    private func show(_ shown: [ReadCensus.Channel], _ census: ReadCensus, _ terminal: Terminal) throws {
        var table = TableStream(
            [
                .text("TOPIC", minimumWidth: 16), .text("USER", minimumWidth: 8), .text("ROLE", minimumWidth: 13),
                .text("SENT", minimumWidth: 10), .text("BEHIND", minimumWidth: 8), .text("QUEUE", minimumWidth: 6),
                .text("LISTENS TO", canBeCut: terminal.isInteractive, minimumWidth: 12),
            ], on: terminal)
        if !shown.isEmpty { try terminal.print(heading: table) }
        for channel in shown { try terminal.print(table.line(channel.cells)) }
        if census.loopsMissing > 0 {
            try terminal.remark(
                "\(census.loopsMissing) of the hub's threads did not answer: their channels are left out")
        }
        let rest =
            census.count > census.channels.count ? "; only the \(census.channels.count) furthest behind are shown" : ""
        try terminal.remark(
            "\(census.count == 1 ? "1 channel" : "\(census.count) channels"), the log ends at @\(census.end)\(rest)")
    }
}

extension Option {
    fileprivate static let lagging = Option.value(
        "lagging", "DURATION", "Only channels that are behind by at least this time, such as 5s.")
}

/// Parsed answer of a hub that lists the channels of its clients.
private struct ReadCensus {
    struct Channel {
        private let members: [String: String]
        /// JSON of the channel, unchanged from the hub's answer.
        let json: String

        init(_ row: HubJSON) {
            members = row.members
            json = row.text
        }

        var lagSeconds: Double? { members["lag_seconds"].flatMap { Double($0) } }

        var cells: [String] {
            let behind = [members["lag"], members["lag_seconds"].map { "\($0)s" }].compactMap(\.self)
            return [
                text("topic"), text("user"), text("role"), members["position"].map { "@\($0)" } ?? "joining",
                members["lag"] == "0" ? "-" : behind.joined(separator: " "), text("queued_bytes"), text("bindings"),
            ]
        }

        private func text(_ name: String) -> String {
            let value = members[name] ?? ""
            return value.isEmpty ? "-" : ScreenText.escaped(value)
        }
    }

    let end: String
    let count: Int
    let loopsMissing: Int
    let channels: [Channel]

    init?(_ bytes: [UInt8]) {
        guard let answer = HubJSON(bytes), let end = answer.members["end"],
            let count = answer.members["channels"].flatMap({ Int($0) })
        else { return nil }
        self.end = end
        self.count = count
        loopsMissing = answer.members["loops_without_answer"].flatMap { Int($0) } ?? 0
        channels = answer.rows.map { Channel($0) }
    }
}
