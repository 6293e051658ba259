import WebSocket

/// Question of an operator to a project's event log: a command with arguments.
///
/// Only commands are allowed that read and name no file. Each command checks its own arguments.
public struct LogQuestion: Sendable, Equatable {
    /// Form of the answer to a question.
    public enum Form: String, Sendable {
        case table, json, csv
        case markdown = "md"
        /// Archive file, which commands can read on any machine.
        case bundle

        var contentType: String {
            switch self {
            case .table: "text/plain; charset=utf-8"
            case .json: "application/x-ndjson; charset=utf-8"
            case .csv: "text/csv; charset=utf-8"
            case .markdown: "text/markdown; charset=utf-8"
            case .bundle: "application/x-tar"
            }
        }
    }

    public let command: String
    public let form: Form
    /// Arguments of the command, without those that locate the log.
    let words: [String]
    /// True if an answer that is too large for one response is kept, so that the operator can fetch it in parts.
    public let isInParts: Bool

    /// Commands that may be asked, with their operands in order. An operand that ends in `…` may be given several
    /// times.
    public static let operands: [String: [String]] = [
        "tail": [], "row": ["table", "key…"], "tx": ["xid"], "asof": ["table"], "stats": [], "event": ["offset"],
        "who": ["offset"], "user": ["sub"], "session": ["session"], "why": [], "info": [], "verify": [], "audit": [],
        "bundle": [], "seed": [],
    ]

    /// Commands that are subcommands of `tidewire log`.
    public static let ofLog: Set<String> = ["info", "verify", "audit"]

    /// Options that are allowed. None of them waits for new entries, repairs the log, or names a file on the hub's
    /// machine.
    public static let options: Set<String> = [
        "from", "to", "table", "op", "where", "presence", "limit", "output", "json", "tz", "mask", "unmask", "by",
        "top",
        "user", "recorded", "now", "offset", "key", "role", "sub", "filter", "event", "unchecked", "note", "policies",
        "deliveries", "replayed", "triggers",
    ]

    /// Options that are true or false.
    private static let flags: Set<String> = [
        "presence", "json", "recorded", "now", "unchecked", "policies", "deliveries", "triggers",
    ]

    /// Reason why a question is refused.
    public struct Refusal: Error, Sendable, Equatable {
        public let reason: String
    }

    public init(_ command: String, _ items: [HTTPQueryItem]) throws(Refusal) {
        guard let wanted = Self.operands[command] else {
            let known = Self.operands.keys.sorted().joined(separator: ", ")
            throw Refusal(reason: "the log answers \(known)")
        }
        self.command = command
        var operands: [String: [String]] = [:]
        var options: [String] = []
        var form = command == "bundle" ? Form.bundle : .table
        var isInParts = false
        for item in items {
            if item.value.contains("\0") { throw Refusal(reason: "\(item.name) has a zero byte") }
            if wanted.contains(where: { $0 == item.name || $0 == item.name + "…" }) {
                operands[item.name, default: []].append(item.value)
                continue
            }
            if item.name == "parts" {
                guard ["", "true", "false"].contains(item.value) else {
                    throw Refusal(reason: "parts is true or false")
                }
                isInParts = item.value != "false"
                continue
            }
            guard Self.options.contains(item.name) else {
                throw Refusal(reason: "\(command) is not asked with \(item.name.prefix(40)) here")
            }
            if Self.flags.contains(item.name) {
                guard ["", "true", "false"].contains(item.value) else {
                    throw Refusal(reason: "\(item.name) is true or false")
                }
                options.append("--\(item.name)=\(item.value == "false" ? "false" : "true")")
                if item.name == "json", item.value != "false" { form = .json }
                continue
            }
            if item.name == "output" {
                // A bundle is a file, which only the command `bundle` makes.
                guard let wanted = Form(rawValue: item.value), (wanted == .bundle) == (command == "bundle") else {
                    throw Refusal(reason: "\(command) has no output \(item.value.prefix(40)) here")
                }
                form = wanted
            }
            options.append("--\(item.name)=\(item.value)")
        }
        self.form = form
        self.isInParts = isInParts
        words = try options + ["--"] + Self.given(wanted, operands, command)
        assert(form != .bundle || command == "bundle", "only a bundle is a file")
    }

    /// Returns a question that counts the values which the log has of a row or, if `isGo` is true, an order to remove
    /// these values. The items are `table`, and `key` for each column of the key.
    public static func forgetting(_ items: [HTTPQueryItem], isGo: Bool) throws(Refusal) -> LogQuestion {
        var operands: [String: [String]] = [:]
        var options = isGo ? ["--go"] : []
        for item in items {
            if item.value.contains("\0") { throw Refusal(reason: "\(item.name) has a zero byte") }
            switch (item.name, item.value) {
            case ("table", let value), ("key", let value): operands[item.name, default: []].append(value)
            case ("json", ""), ("json", "true"): options.append("--json")
            case ("json", "false"): break
            default: throw Refusal(reason: "it is asked with table, key and json, and not with \(item.name.prefix(40))")
            }
        }
        return LogQuestion(
            "forget", options.contains("--json") ? .json : .table,
            try options + ["--"] + given(["table", "key…"], operands, "forgetting"))
    }

    private init(_ command: String, _ form: Form, _ words: [String]) {
        (self.command, self.form, self.words, isInParts) = (command, form, words, false)
    }

    /// Returns the same question with another option.
    func with(_ option: String) -> LogQuestion {
        assert(option.hasPrefix("--") && option != "--", "an option stands before the operands")
        return LogQuestion(command, form, [option] + words)
    }

    /// True if the command is a subcommand of `tidewire log`.
    var isOfLog: Bool { Self.ofLog.contains(command) || command == "forget" }

    private static func given(
        _ wanted: [String], _ operands: [String: [String]], _ command: String
    ) throws(Refusal) -> [String] {
        var given: [String] = []
        for name in wanted {
            let isMany = name.hasSuffix("…")
            let values = operands[isMany ? String(name.dropLast()) : name] ?? []
            guard isMany ? !values.isEmpty : values.count == 1 else {
                let plain = isMany ? String(name.dropLast()) : name
                throw Refusal(reason: "\(command) is asked with \(plain)=…\(isMany ? "" : ", once")")
            }
            given += values
        }
        assert(given.count >= wanted.count, "each operand has a value")
        return given
    }
}
