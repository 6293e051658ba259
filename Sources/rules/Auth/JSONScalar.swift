import Bytes

/// JSON value that is neither an array nor an object.
public enum JSONScalar: Sendable, Equatable {
    case string(String)
    case integer(Int64)
    case decimal(Double)
    case bool(Bool)
    case null

    /// Creates the value of the scanner's current token; nil if that is an array, an object or a name.
    init?(_ token: JSONToken, in scanner: borrowing JSONScanner) {
        switch token {
        case .string: self = .string(scanner.text)
        case .number: self = Self.number(scanner)
        case .bool(let flag): self = .bool(flag)
        case .null: self = .null
        case .beginObject, .endObject, .beginArray, .endArray, .name, .end: return nil
        }
    }

    private static func number(_ scanner: borrowing JSONScanner) -> JSONScalar {
        if let integer = scanner.integer(Int64.self) { return .integer(integer) }
        // The scanner has checked the syntax, which is stricter than that of Double.
        return .decimal(Double(scanner.tokenBytes.text) ?? .nan)
    }

    public static func == (left: JSONScalar, right: JSONScalar) -> Bool {
        switch (left, right) {
        case (.string(let left), .string(let right)): left.utf8.elementsEqual(right.utf8)
        case (.integer(let left), .integer(let right)): left == right
        case (.decimal(let left), .decimal(let right)): left == right
        case (.integer(let whole), .decimal(let other)), (.decimal(let other), .integer(let whole)):
            Int64(exactly: other) == whole
        case (.bool(let left), .bool(let right)): left == right
        case (.null, .null): true
        default: false
        }
    }

    /// Value as a time in whole seconds; nil if it is not a number. Decimals are rounded, and limited to the years up
    /// to 9999.
    var roundedSeconds: Int64? {
        switch self {
        case .integer(let seconds): seconds
        case .decimal(let seconds):
            Int64(min(max(seconds.rounded(), -Double(Claims.latestExpiry)), Double(Claims.latestExpiry)))
        case .string, .bool, .null: nil
        }
    }
}
