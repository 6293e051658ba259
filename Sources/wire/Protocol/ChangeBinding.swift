import Bytes

/// Operations that a binding subscribes to.
public enum BindingEvent: Sendable, Hashable {
    case all, insert, update, delete

    /// Reads an operation's name, in upper or lower case. Any other name means all operations.
    init(_ name: String) {
        switch name.uppercased() {
        case "INSERT": self = .insert
        case "UPDATE": self = .update
        case "DELETE": self = .delete
        default: self = .all
        }
    }

    public var name: StaticString {
        switch self {
        case .all: "*"
        case .insert: "INSERT"
        case .update: "UPDATE"
        case .delete: "DELETE"
        }
    }
}

/// Subscription that a binding asks for, after its parameters were found usable.
public struct BindingParameters: Sendable, Hashable {
    public var event: BindingEvent
    /// Schema name, or `*`.
    public var schema: String
    /// Table name, or `*`.
    public var table: String
    /// Filter as the client sent it; nil if there is none.
    public var filter: String?
    /// Names of the columns to send, in the order in which the client sent them; empty means all columns.
    public var select: [String]
    /// Options beyond the protocol that apply to this binding only.
    public var options = ExtensionOptions()
    /// Event name that the hub does not know and therefore treats as all events; nil for a known name.
    public var unknownEvent: String?

    public init(event: BindingEvent, schema: String, table: String, filter: String? = nil, select: [String] = []) {
        self.event = event
        self.schema = schema
        self.table = table
        self.filter = filter
        self.select = select
    }

    public var hasWildcard: Bool { schema == "*" || table == "*" }
}

/// Reason why the hub cannot use a binding's parameters. The channel stays joined and gets the reason in a `system`
/// message.
public enum BindingError: Error, Sendable, Hashable {
    /// Parameters are missing. The text is the client's entry in the notation of the reference server (Supabase
    /// Realtime).
    case noParameters(String)
    case selectIsNoList
    case selectWithWildcard

    public var message: String {
        switch self {
        case .noParameters(let entry):
            "No subscription params provided. Please provide at least a `schema` or `table` to subscribe to: \(entry)"
        case .selectIsNoList:
            "Error parsing `select` params: expected a list of column name strings, e.g. select: [\"col1\", \"col2\"]"
        case .selectWithWildcard:
            "Column selection is not supported for wildcard subscriptions. Provide an explicit schema and table name."
        }
    }
}

/// Element of `postgres_changes`: the requested subscription, and the entry that the join reply returns for it.
public struct ChangeBinding: Sendable {
    /// JSON object of the entry as the client sent it, byte for byte.
    public let verbatim: [UInt8]
    /// Positive number below 2^31 that the join reply gives to the entry. Entries with the same parameters have the
    /// same id, whatever their order and white space.
    public let id: UInt32
    public let parameters: Result<BindingParameters, BindingError>

    /// Reads a binding from `object`, which must be a valid JSON object.
    init(_ object: RawSpan) throws(ByteError) {
        verbatim = object.copied()
        id = try BindingID.of(object)
        var members = BindingMembers()
        try members.read(object)
        parameters = members.parameters(of: object)
        assert(id > 0 && id <= 0x7fff_ffff, "an id is positive and fits in 31 bits")
    }

    /// Reads a binding from a topic of the older form, `schema[:table[:filter]]`, without the prefix `realtime:`.
    init(legacy subTopic: RawSpan) {
        let parts = subTopic.text.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false).map(String.init)
        var writer = ByteWriter()
        for (name, part) in zip(["schema", "table", "filter"], parts) {
            writer.append(writer.isEmpty ? "{\"" : ",\"")
            writer.append(name)
            writer.append("\":")
            JSONText.appendString(part, to: &writer)
        }
        writer.append("}")
        verbatim = writer.copied()
        // This cannot fail: the text written above is a valid object of strings.
        id = (try? BindingID.of(writer.bytes)) ?? 1
        parameters = .success(
            BindingParameters(
                event: .all, schema: parts.first ?? "*", table: parts.count > 1 ? parts[1] : "*",
                filter: parts.count > 2 ? parts[2] : nil))
    }

    /// Makes a binding for a feed, the answer to `GET /api/changes`. No client sent it, so no reply repeats it.
    init(feed: BindingParameters, id: UInt32) {
        assert(id > 0 && id <= 0x7fff_ffff, "an id of a feed is positive and fits in 31 bits")
        verbatim = []
        self.id = id
        parameters = .success(feed)
    }

    /// Writes the client's entry with the id as its last member, for the join reply.
    public func appendReply(to writer: inout ByteWriter) {
        assert(verbatim.last == UInt8(ascii: "}"), "a reply repeats an object that a client sent")
        // SAFETY: any byte is a valid UInt8, and the span lives as long as `verbatim`.
        let object = unsafe verbatim.span.bytes
        var end = object.byteCount - 1
        writer.append(object.extracting(0..<end))
        while end > 0, JSONSpace.isSpace(object.byte(end - 1)) { end -= 1 }
        writer.append(end > 0 && object.byte(end - 1) == UInt8(ascii: "{") ? "\"id\":" : ",\"id\":")
        writer.append(decimal: UInt64(id))
        writer.append("}")
    }
}

enum JSONSpace {
    static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0a || byte == 0x0d || byte == 0x09 }
}

/// Members of one `postgres_changes` entry that the hub uses. If a name occurs twice, the last one counts.
private struct BindingMembers {
    private enum Member {
        case absent
        case text(String)
        case other

        var isAbsent: Bool { if case .absent = self { true } else { false } }
        var text: String? { if case .text(let text) = self { text } else { nil } }
    }

    private var event = Member.absent
    private var schema = Member.absent
    private var table = Member.absent
    private var filter = Member.absent
    private var select: [String] = []
    private var selectIsText = false
    private var options = ExtensionOptions()
    /// True if the entry contains a token, so that messages must not show the entry.
    private var hasToken = false

    mutating func read(_ object: RawSpan) throws(ByteError) {
        var scanner = JSONScanner(object, maximumDepth: JSONScanner.deepest)
        _ = try scanner.next()
        while try scanner.next() == .name {
            if scanner.equals("event") {
                event = try member(&scanner)
            } else if scanner.equals("schema") {
                schema = try member(&scanner)
            } else if scanner.equals("table") {
                table = try member(&scanner)
            } else if scanner.equals("filter") {
                filter = try member(&scanner)
            } else if scanner.equals("select") {
                try readSelect(&scanner)
            } else if scanner.equals("tidewire") {
                options = try ExtensionOptions(&scanner)
            } else {
                hasToken = hasToken || scanner.equals("user_token") || scanner.equals("auth_token")
                try scanner.skip(try scanner.next())
            }
        }
    }

    private func member(_ scanner: inout JSONScanner) throws(ByteError) -> Member {
        let token = try scanner.next()
        if token == .string { return .text(scanner.text) }
        try scanner.skip(token)
        return .other
    }

    private mutating func readSelect(_ scanner: inout JSONScanner) throws(ByteError) {
        select = []
        let token = try scanner.next()
        selectIsText = token == .string
        guard token == .beginArray else { return try scanner.skip(token) }
        while true {
            let token = try scanner.next()
            if token == .endArray { return }
            if token == .string { select.append(scanner.text) } else { try scanner.skip(token) }
        }
    }

    func parameters(of object: RawSpan) -> Result<BindingParameters, BindingError> {
        guard let (schema, table, filter) = relation else {
            return .failure(.noParameters(hasToken ? "<redacted>" : InspectedTerm.text(of: object)))
        }
        if selectIsText { return .failure(.selectIsNoList) }
        var parameters = BindingParameters(
            event: BindingEvent(event.text ?? "*"), schema: schema, table: table, filter: filter, select: select)
        parameters.options = options
        if let text = event.text, text != "*", parameters.event == .all { parameters.unknownEvent = text }
        if !select.isEmpty, parameters.hasWildcard { return .failure(.selectWithWildcard) }
        return .success(parameters)
    }

    /// Schema, table and filter; nil if the given members do not describe a subscription.
    private var relation: (schema: String, table: String, filter: String?)? {
        switch (schema, table, filter) {
        case (.text(let schema), .text(let table), .text(let filter)): (schema, table, filter)
        case (.text(let schema), .text(let table), .absent): (schema, table, nil)
        case (.text(let schema), .absent, .absent): (schema, "*", nil)
        case (.absent, .text(let table), .absent): ("public", table, nil)
        default: nil
        }
    }
}

extension BindingParameters {
    /// Value in a filter, if it looks as if it contained a second condition: `OPEN OR x=eq.1`. Nil for other filters,
    /// and for lists such as `and=(…)`.
    var suspectFilterValue: Substring? {
        guard let filter, Self.hasSecondSign(filter), let start = filter.firstIndex(of: "="),
            !["and", "or", "not.and", "not.or"].contains(filter[..<start])
        else { return nil }
        let text = filter[filter.index(after: start)...]
        let value = text.firstIndex(of: ".").map { text[text.index(after: $0)...] } ?? text
        let bytes = Array(value.utf8)
        for place in bytes.indices where bytes[place] == UInt8(ascii: "=") {
            let name = bytes[..<place].reversed().prefix(while: Self.isOfName).count
            let operation = bytes[(place + 1)...].prefix(while: Self.isOfName).count
            let (before, after) = (place - name - 1, place + 1 + operation)
            guard name > 0, (2...10).contains(operation), before >= 0, after < bytes.count else { continue }
            guard " &;".utf8.contains(bytes[before]), bytes[after] == UInt8(ascii: ".") else { continue }
            // After a comma the text is a separate condition.
            if bytes[...before].last(where: { $0 != UInt8(ascii: " ") }) != UInt8(ascii: ",") { return value }
        }
        return nil
    }

    /// True if the filter has a second `=`. This cheap check comes before the expensive one: most filters have only one
    /// `=`, and a join may have many filters.
    private static func hasSecondSign(_ filter: String) -> Bool {
        let bytes = filter.utf8.span
        var count = 0
        for place in bytes.indices where bytes[place] == UInt8(ascii: "=") { count += 1 }
        return count > 1
    }

    private static func isOfName(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: false
        }
    }
}

extension BindingParameters {
    public var filterParts: Int { Self.parts(of: filter) }

    /// Returns the number of conditions and list values in a filter. Commas separate them. Without a filter returns 1.
    public static func parts(of filter: String?) -> Int {
        guard let filter else { return 1 }
        let bytes = filter.utf8.span
        var count = 1
        for index in bytes.indices where bytes[index] == UInt8(ascii: ",") { count += 1 }
        return count
    }
}
