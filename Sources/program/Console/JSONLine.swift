/// Line of NDJSON: an object whose fields keep the order in which they were added.
public struct JSONLine {
    private var fields = ""

    public init() {}

    /// Adds a text. A nil becomes null.
    public mutating func add(_ name: String, _ value: String?) {
        add(name, json: value.map(Self.quoted) ?? "null")
    }

    public mutating func add(_ name: String, _ value: some BinaryInteger) {
        add(name, json: String(value))
    }

    public mutating func add(_ name: String, _ value: Bool) {
        add(name, json: value ? "true" : "false")
    }

    /// Adds a number. Infinity and NaN become null, because JSON has no words for them.
    public mutating func add(_ name: String, _ value: Double) {
        add(name, json: value.isFinite ? "\(value)" : "null")
    }

    /// Adds a field whose value is already JSON.
    public mutating func add(_ name: String, json: String) {
        // The parts are appended separately, because joining a large value first would copy it once more.
        fields += fields.isEmpty ? "{" : ","
        fields += Self.quoted(name)
        fields += ":"
        fields += json
    }

    public var text: String { (fields.isEmpty ? "{" : fields) + "}" }

    public static func quoted(_ text: String) -> String {
        if text.utf8.allSatisfy({ $0 >= 0x20 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") }) {
            return "\"" + text + "\""
        }
        return text.unicodeScalars.reduce(into: "\"") { result, scalar in
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
