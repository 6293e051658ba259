import Bytes
import Diagnostics
import Settings
import WebSocket

/// Question of an operator to a project's event log: a command of the program with its arguments.
///
/// Only commands that read and that name no file are allowed. Each command checks its own arguments.
public struct LogQuestion: Sendable, Equatable {
    /// Form of the answer to a question.
    public enum Form: String, Sendable {
        case table, json, csv
        case markdown = "md"
        /// Bundle of the log: one archive file, which commands can read on any machine.
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
    /// Role that an operator needs for this question, with its options.
    public let role: OperatorRole
    /// Text of the question for the audit file: its command and options, without conditions on values and keys of rows.
    public let audited: String
    /// Questions of a request that contains several; empty for a single question.
    let batch: [LogQuestion]

    /// Command that an operator may ask.
    public struct Command: Sendable {
        /// Names of the operands in order. One that ends in `…` may be repeated, one that ends in `?` may be left out.
        public let operands: [String]
        /// Role that an operator needs for the command. Its options may need a higher one.
        public let role: OperatorRole

        fileprivate init(_ operands: [String] = [], _ role: OperatorRole) {
            (self.operands, self.role) = (operands, role)
        }
    }

    public static let commands: [String: Command] = [
        "tail": Command([], .analyst), "row": Command(["table", "key…"], .analyst), "tx": Command(["xid"], .analyst),
        "asof": Command(["table"], .analyst), "stats": Command([], .viewer), "event": Command(["offset"], .analyst),
        "who": Command(["offset"], .analyst), "user": Command(["sub"], .analyst),
        "session": Command(["session?"], .analyst), "why": Command([], .analyst), "info": Command([], .viewer),
        "verify": Command([], .viewer), "audit": Command([], .analyst), "bundle": Command([], .analyst),
        "seed": Command([], .analyst), "doctor": Command([], .analyst), "policies": Command([], .analyst),
    ]

    /// Commands that read only the database, not the log.
    static let ofDatabase: Set<String> = ["doctor"]

    /// Commands below `tidewire log`.
    public static let ofLog: Set<String> = ["info", "verify", "audit"]

    /// Allowed options, each with the role that an operator needs for it. No option follows the log, repairs it, or
    /// names a file on the hub's machine.
    ///
    /// A viewer has no option with a condition on values: with many such questions, an operator could find out a value.
    public static let options: [String: OperatorRole] = [
        "from": .viewer, "to": .viewer, "table": .viewer, "op": .viewer, "limit": .viewer, "output": .viewer,
        "json": .viewer, "tz": .viewer, "mask": .viewer, "by": .viewer, "top": .viewer, "because": .viewer,
        "strict": .viewer, "at": .viewer, "unchecked": .viewer,
        "where": .analyst, "presence": .analyst, "user": .analyst, "recorded": .analyst, "now": .analyst,
        "offset": .analyst, "key": .analyst, "role": .analyst, "sub": .analyst, "filter": .analyst, "event": .analyst,
        "note": .analyst, "policies": .analyst, "deliveries": .analyst, "replayed": .analyst,
        "triggers": .analyst, "reads": .analyst, "outcome": .analyst, "gone": .analyst, "session": .analyst,
        "unmask": .admin,
    ]

    /// Columns by which a viewer may group counts. Other groupings would show values of rows or users.
    private static let groupings: Set<String> = ["table", "operation", "origin", "minute", "hour", "day"]

    private static let flags: Set<String> = [
        "presence", "json", "recorded", "now", "unchecked", "policies", "deliveries", "triggers", "reads",
        "strict", "gone",
    ]

    /// Reason why a question is refused.
    public struct Refusal: Error, Sendable, Equatable {
        public let reason: String
    }

    public init(_ command: String, _ items: [HTTPQueryItem]) throws(Refusal) {
        guard let asked = Self.commands[command] else {
            let known = Self.commands.keys.sorted().joined(separator: ", ")
            throw Refusal(reason: "the log answers \(known)")
        }
        let wanted = asked.operands
        var role = asked.role
        self.command = command
        var operands: [String: [String]] = [:]
        var options: [String] = []
        var form = command == "bundle" ? Form.bundle : .table
        var isInParts = false
        for item in items {
            if item.value.contains("\0") { throw Refusal(reason: "\(item.name) has a zero byte") }
            if wanted.contains(where: { Self.plain($0) == item.name }) {
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
            guard let needed = Self.options[item.name] else {
                throw Refusal(reason: "\(command) is not asked with \(item.name.prefix(40)) here")
            }
            role = max(role, needed)
            if item.name == "by", !Self.groupings.contains(item.value.lowercased()) { role = max(role, .analyst) }
            if Self.flags.contains(item.name) {
                guard ["", "true", "false"].contains(item.value) else {
                    throw Refusal(reason: "\(item.name) is true or false")
                }
                options.append("--\(item.name)=\(item.value == "false" ? "false" : "true")")
                if item.name == "json", item.value != "false" { form = .json }
                continue
            }
            if item.name == "output" {
                // A bundle is a file. Only the command `bundle` makes one, and it makes nothing else.
                guard let wanted = Form(rawValue: item.value), (wanted == .bundle) == (command == "bundle") else {
                    throw Refusal(reason: "\(command) has no output \(item.value.prefix(40)) here")
                }
                form = wanted
            }
            options.append("--\(item.name)=\(item.value)")
        }
        self.form = form
        self.isInParts = isInParts
        self.role = role
        batch = []
        audited = Self.audited(command, items)
        let reason = items.last { $0.name == "because" }?.value ?? ""
        guard reason.utf8.count <= Self.longestReason else {
            throw Refusal(reason: "because has more than \(Self.longestReason) bytes")
        }
        if items.contains(where: { $0.name == "unmask" }), reason.allSatisfy(\.isWhitespace) {
            throw Refusal(reason: "unmask needs a reason: because=TEXT (--because TEXT), which the audit keeps")
        }
        words = try options + ["--"] + Self.given(wanted, operands, command)
        assert(form != .bundle || command == "bundle", "only a bundle is a file")
    }

    /// Returns a question for the number of values that the log has of a row. If `isGo` is true, it is an order to
    /// erase these values. The items are `table`, and `key` for each key column.
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
            try options + ["--"] + given(["table", "key…"], operands, "forgetting"), isGo ? .admin : .analyst,
            audited("forget", items))
    }

    private init(_ command: String, _ form: Form, _ words: [String], _ role: OperatorRole, _ audited: String) {
        (self.command, self.form, self.words, self.role, self.audited) = (command, form, words, role, audited)
        isInParts = false
        batch = []
    }

    private init(batch: [LogQuestion]) {
        (command, form, words, isInParts) = ("ask", .json, [], false)
        role = batch.map(\.role).max() ?? .viewer
        audited = ""
        self.batch = batch
    }

    /// Single questions of which this one consists: those of `batch`, or itself.
    var each: [LogQuestion] { batch.isEmpty ? [self] : batch }

    /// True if the process that answers needs the project's secrets, because it checks them.
    var needsSecrets: Bool { command == "doctor" }

    /// True if the command reads the log, not only the database.
    var readsLog: Bool { !Self.ofDatabase.contains(command) }

    // MARK: Several questions, and streams

    public static let mostAtOnce = 20

    /// Parses the questions in the body of a request, in order:
    ///
    ///     {"questions": [{"command": "row", "table": "notes", "key": ["1"]}, {"command": "stats", "from": "-1h"}]}
    public static func several(_ body: [UInt8]) throws(Refusal) -> LogQuestion {
        guard
            let object = (try? JSONValue.parse(body, maximumDepth: 5))?
                .object, object.members.count == 1,
            let asked = object["questions"]?.array, (1...mostAtOnce).contains(asked.count)
        else {
            throw Refusal(reason: "the body is {\"questions\": [{\"command\": …}, …]}, with 1 to \(mostAtOnce) of them")
        }
        var questions: [LogQuestion] = []
        for (place, question) in asked.enumerated() {
            do throws(Refusal) {
                questions.append(try one(question))
            } catch {
                throw Refusal(reason: "question \(place + 1): \(error.reason)")
            }
        }
        return LogQuestion(batch: questions)
    }

    private static func one(_ question: JSONValue) throws(Refusal) -> LogQuestion {
        guard let members = question.object?.members, let command = question.object?["command"]?.string else {
            throw Refusal(reason: "it is an object with the name of a command")
        }
        var items: [HTTPQueryItem] = []
        for (name, value) in members where name != "command" {
            for value in value.array ?? [value] {
                guard value.object == nil, value.array == nil, value != .null else {
                    throw Refusal(reason: "\(name.prefix(40)) is a text, a number, true or false, or a list of these")
                }
                items.append(HTTPQueryItem(name, value.string ?? value.text))
            }
        }
        guard command != "bundle", !items.contains(where: { $0.name == "parts" }) else {
            throw Refusal(reason: "a bundle, and an answer in parts, is asked alone")
        }
        return try LogQuestion(command, items)
    }

    private static let ofStreams: Set = ["from", "table", "op", "where", "presence", "mask", "unmask", "because"]

    /// Returns the question for a stream of new entries: `tail` as JSON, without an end. Without `from`, the stream
    /// begins at the present end of the log.
    public static func following(_ items: [HTTPQueryItem]) throws(Refusal) -> LogQuestion {
        if let other = items.first(where: { !ofStreams.contains($0.name) }) {
            throw Refusal(
                reason:
                    "a stream is asked with \(ofStreams.sorted().joined(separator: ", ")), not \(other.name.prefix(40))"
            )
        }
        let start = items.contains { $0.name == "from" } ? [] : [HTTPQueryItem("from", "now")]
        let question = try LogQuestion("tail", items + start + [HTTPQueryItem("json", "true")])
        return LogQuestion(
            "tail", .json, ["--follow"] + question.words, max(question.role, .analyst),
            "follow" + question.audited.dropFirst("tail".count))
    }

    private static let longestReason = 512

    /// Returns the operand's name without its last character `…` or `?`.
    private static func plain(_ operand: String) -> String {
        operand.hasSuffix("…") || operand.hasSuffix("?") ? String(operand.dropLast()) : operand
    }

    /// Returns the text for the audit file: the command and its options, with conditions and keys replaced by `…`.
    private static func audited(_ command: String, _ items: [HTTPQueryItem]) -> String {
        let hidden: Set = ["key", "where", "filter", "because", "note", "replayed"]
        let shown = items.filter { $0.name != "parts" }
            .map { hidden.contains($0.name) ? "\($0.name)=…" : "\($0.name)=\($0.value.prefix(200))" }
        return ([command] + shown).joined(separator: " ")
    }

    /// Returns the same question with one more option.
    func with(_ option: String) -> LogQuestion {
        assert(option.hasPrefix("--") && option != "--", "an option stands before the operands")
        return LogQuestion(command, form, [option] + words, role, audited)
    }

    /// True if the command is a subcommand of `tidewire log`.
    var isOfLog: Bool { Self.ofLog.contains(command) || command == "forget" }

    /// Returns the values of the operands in order. Throws if one is missing or given too often.
    private static func given(
        _ wanted: [String], _ operands: [String: [String]], _ command: String
    ) throws(Refusal) -> [String] {
        var given: [String] = []
        for name in wanted {
            let (isMany, isOptional) = (name.hasSuffix("…"), name.hasSuffix("?"))
            let values = operands[plain(name)] ?? []
            guard isMany ? !values.isEmpty : values.count == 1 || isOptional && values.isEmpty else {
                throw Refusal(reason: "\(command) is asked with \(plain(name))=…\(isMany ? "" : ", once")")
            }
            given += values
        }
        assert(given.count >= wanted.filter { !$0.hasSuffix("?") }.count, "each operand that is needed has a value")
        return given
    }
}
