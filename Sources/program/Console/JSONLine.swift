/// One line of NDJSON: an object whose fields stand in the order they were added.
public struct JSONLine {
    private var fields = ""

    public init() {}

    /// A text, or null.
    public mutating func add(_ name: String, _ value: String?) {
        add(name, json: value.map(Self.quoted) ?? "null")
    }

    public mutating func add(_ name: String, _ value: some BinaryInteger) {
        add(name, json: String(value))
    }

    public mutating func add(_ name: String, _ value: Bool) {
        add(name, json: value ? "true" : "false")
    }

    /// JSON has no words for infinity and what is not a number.
    public mutating func add(_ name: String, _ value: Double) {
        add(name, json: value.isFinite ? "\(value)" : "null")
    }

    /// A value that is JSON already.
    public mutating func add(_ name: String, json: String) {
        // Each by itself: a value may be large, and a sum of texts is one more copy of it.
        fields += fields.isEmpty ? "{" : ","
        fields += Self.quoted(name)
        fields += ":"
        fields += json
    }

    public var text: String { (fields.isEmpty ? "{" : fields) + "}" }

    public static func quoted(_ text: String) -> String {
        text.unicodeScalars.reduce(into: "\"") { result, scalar in
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case "\0"..<" ": result += "\\u00" + (scalar.value < 16 ? "0" : "") + String(scalar.value, radix: 16)
            default: result.unicodeScalars.append(scalar)
            }
        } + "\""
    }
}
