/// Type of a setting: its allowed values, and how their text is read.
public enum SettingType: Sendable {
    case text
    /// Text that is never shown.
    case secret
    /// Path of a directory.
    case path
    /// Path of a file.
    case file
    case boolean
    case integer(ClosedRange<Int64>)
    /// Number of bytes, such as `64MB`.
    case size(ClosedRange<Int64>)
    /// Duration, such as `72h`.
    case duration(ClosedRange<Duration>)
    /// One of the words. Each synonym stands for one of them.
    case choice([String], synonyms: [String: String])
    /// Address in the form `host:port`.
    case address
    /// Name that is valid for a replication slot.
    case slotName
    /// Name that is valid for any object in PostgreSQL.
    case identifier
    /// Address of a PostgreSQL database.
    case connection
    /// The content itself, if the text begins with `begins`, or the path of a file with the content.
    case inlineOrFile(String, begins: String)
    /// JSON object whose values are no arrays or objects.
    case claimValues
    /// URLs of NATS servers, perhaps with a login; an empty text is none.
    case natsServers
    /// URLs of NATS servers' monitoring ports.
    case monitors
    /// Name of a node of a cluster.
    case nodeName

    /// True if values of this type are never shown, or only without their secret parts.
    public var isSecret: Bool {
        switch self {
        case .secret, .connection, .inlineOrFile, .natsServers: true
        default: false
        }
    }
}

/// Parsed value of a setting.
public enum SettingValue: Sendable, Equatable {
    case text(String)
    case secret(Secret)
    case boolean(Bool)
    case integer(Int64)
    case size(Int64)
    case duration(Duration)
    case address(ListenAddress)
    case connection(ConnectionString)
    case source(InlineOrFile)
    case servers(ClusterAddresses)
    case monitors(MonitorAddresses)
}

/// Error for a text that is no value of its setting's type. It says what was expected. It does not contain the text,
/// which may be a secret: the code that reports the error decides if it shows the text.
public struct MalformedValue: Error, Equatable {
    public let expected: String
}

extension SettingType {
    /// Description of the allowed values, as the end of a sentence that begins with "expected".
    public var allowed: String {
        switch self {
        case .text, .secret: "a text that is not empty"
        case .path, .file: "a path"
        case .boolean: "on or off (also true, false, yes, no, 1, 0)"
        case .integer(let range): "a whole number from \(range.lowerBound) to \(range.upperBound)"
        case .size(let range):
            "a size from \(SizeText.write(range.lowerBound)) to \(SizeText.write(range.upperBound)), such as 64MB "
                + "(units: B, kB, MB, GB, TB; 1 kB is 1024 bytes)"
        case .duration(let range):
            "a duration from \(DurationText.write(range.lowerBound)) to \(DurationText.write(range.upperBound)), "
                + "such as 72h (units: ms, s, min, h, d)"
        case .choice(let words, _): "one of " + words.joined(separator: ", ")
        case .address: "host:port, such as 127.0.0.1:4000 or [::1]:4000"
        case .slotName: "a slot name: 1 to 63 of the characters a-z, 0-9 and _"
        case .identifier: "a name of 1 to 63 bytes"
        case .connection:
            "a connection URL such as postgres://user:password@host:5432/database, or key=value pairs as libpq takes them"
        case .inlineOrFile(let what, let beginning): "\(what) (it begins with \(beginning)) or the path of its file"
        case .claimValues: "a JSON object of texts, numbers, booleans or null, such as {\"iss\": \"https://…\"}"
        case .natsServers:
            "URLs of NATS servers such as nats://user:password@host:4222, separated by commas: all nats:// or all tls://, "
                + "and with the same login, if any"
        case .monitors: "URLs such as http://host:8222, separated by commas"
        case .nodeName: "a name: 1 to 63 of the characters a-z, A-Z, 0-9, - and _"
        }
    }

    public func parse(_ text: String) throws(MalformedValue) -> SettingValue {
        guard let value = read(text) else { throw MalformedValue(expected: allowed) }
        return value
    }

    private func read(_ text: String) -> SettingValue? {
        switch self {
        case .text, .path, .file: Self.isText(text) ? .text(text) : nil
        case .secret: Self.isText(text) ? .secret(Secret(text)) : nil
        case .boolean: BooleanText.read(text).map { .boolean($0) }
        case .integer(let range): Int64(text).flatMap { range.contains($0) ? .integer($0) : nil }
        case .size(let range): SizeText.read(text).flatMap { range.contains($0) ? .size($0) : nil }
        case .duration(let range): DurationText.read(text).flatMap { range.contains($0) ? .duration($0) : nil }
        case .choice(let words, let synonyms): ChoiceText.read(text, words, synonyms).map { .text($0) }
        case .address: ListenAddress(text).map { .address($0) }
        case .slotName: IdentifierText.isSlotName(text) ? .text(text) : nil
        case .identifier: IdentifierText.isIdentifier(text) ? .text(text) : nil
        case .connection: ConnectionString(text).map { .connection($0) }
        case .inlineOrFile(_, let beginning): InlineOrFile(text, begins: beginning).map { .source($0) }
        case .claimValues: ClaimText.read(text) == nil ? nil : .text(text)
        case .natsServers: ClusterAddresses(text).map { .servers($0) }
        case .monitors: MonitorAddresses(text).map { .monitors($0) }
        case .nodeName: NodeName.isValid(text) ? .text(text) : nil
        }
    }

    /// True for a text that is not empty and has no zero byte, at which C code would end the text.
    private static func isText(_ text: String) -> Bool {
        !text.isEmpty && !text.utf8.contains(0)
    }

    /// True if a given text may contain a secret, even if it is not valid for the type.
    var mayHoldSecret: Bool {
        switch self {
        case .secret, .connection, .inlineOrFile, .natsServers: true
        default: false
        }
    }

    /// Returns the allowed number or size that is nearest to the given one.
    public func nearest(to number: Int) -> Int {
        switch self {
        case .integer(let range), .size(let range): Int(min(max(range.lowerBound, Int64(number)), range.upperBound))
        default: preconditionFailure("only numbers and sizes have values between others")
        }
    }
}

extension SettingValue {
    /// Text as the configuration file would contain it, with secrets hidden.
    var shown: String {
        switch self {
        case .text(let text): text
        case .secret(let secret): secret.description
        case .boolean(let flag): flag ? "on" : "off"
        case .integer(let number): String(number)
        case .size(let bytes): SizeText.write(bytes)
        case .duration(let duration): DurationText.write(duration)
        case .address(let address): address.description
        case .connection(let connection): connection.redacted
        case .source(let source): source.shown
        case .servers(let addresses): addresses.redacted
        case .monitors(let addresses): addresses.urls.joined(separator: ",")
        }
    }
}
