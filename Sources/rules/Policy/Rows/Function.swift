/// An operator, a function or a cast that the process can apply to values as PostgreSQL does.
///
/// In: types and a collation. Out: something that can be applied to texts. What is not certain to equal PostgreSQL is
/// either not there at all, or says of the values in question that it cannot.
public struct Function: Sendable, Hashable {
    /// The type of what it makes.
    public let result: TypeFacts
    let operation: Operation

    init(_ result: TypeFacts, _ operation: Operation) {
        self.result = result
        self.operation = operation
    }

    enum Operation: Sendable, Hashable {
        /// Fails, whatever it is applied to.
        case failure
        /// `now()`.
        case moment
        case compare(Comparison, Comparator, labels: [[UInt8]])
        case compareFloats(Comparison, FloatWidth, FloatWidth)
        /// Dates and timestamps beside each other.
        case compareMoments(Comparison)
        case contains(Comparator)
        case isContained(Comparator)
        case overlaps(Comparator)
        case like(isNegated: Bool, Folding)
        case concatenate
        case arithmetic(Arithmetic, IntegerWidth)
        case shiftMoment(isNegative: Bool, isUTC: Bool)
        case field(FieldAddress, asText: Bool, isBinary: Bool)
        case hasName(Quantity)
        /// A cast that leaves the text as it is.
        case relabel
        /// The text as a client would write the value.
        case parse
        case parseJSON(isBinary: Bool)
        case withoutBlanks
        case truthWord
        case name
        case narrow(IntegerWidth)
        case float(FloatWidth)
        case midnight
        case zoneOfUTC(isAdded: Bool)
        case fold(isUpper: Bool, Folding)
        case split
        case part
        case length
        case trim(start: Bool, end: Bool)
        case replace
        case startsWith
        case arrayLength
        case cardinality
    }

    enum Comparison: UInt8, Sendable, Hashable {
        case equal, notEqual, less, lessOrEqual, greater, greaterOrEqual

        init?(_ symbol: String) {
            switch symbol {
            case "=": self = .equal
            case "<>", "!=": self = .notEqual
            case "<": self = .less
            case "<=": self = .lessOrEqual
            case ">": self = .greater
            case ">=": self = .greaterOrEqual
            default: return nil
            }
        }

        var isOrder: Bool { self != .equal && self != .notEqual }

        /// With both sides changed.
        var turned: Comparison {
            switch self {
            case .equal, .notEqual: self
            case .less: .greater
            case .lessOrEqual: .greaterOrEqual
            case .greater: .less
            case .greaterOrEqual: .lessOrEqual
            }
        }

        func holds(_ order: Int) -> Bool {
            switch self {
            case .equal: order == 0
            case .notEqual: order != 0
            case .less: order < 0
            case .lessOrEqual: order <= 0
            case .greater: order > 0
            case .greaterOrEqual: order >= 0
            }
        }
    }

    enum FloatWidth: UInt8, Sendable, Hashable {
        case single, double
    }

    /// The letters that have two cases.
    enum Folding: UInt8, Sendable, Hashable {
        case none
        /// Letters of ASCII; others stay as they are.
        case plain
        /// Letters of ASCII; where there are others, PostgreSQL is asked.
        case ofASCII
    }

    enum Arithmetic: UInt8, Sendable, Hashable {
        case add, subtract, multiply, divide, remainder
    }

    enum IntegerWidth: UInt8, Sendable, Hashable, Comparable {
        case two, four, eight

        init?(_ oid: UInt32) {
            switch oid {
            case TypeOID.int2: self = .two
            case TypeOID.int4: self = .four
            case TypeOID.int8: self = .eight
            default: return nil
            }
        }

        var range: ClosedRange<Int64> {
            switch self {
            case .two: Int64(Int16.min)...Int64(Int16.max)
            case .four: Int64(Int32.min)...Int64(Int32.max)
            case .eight: Int64.min...Int64.max
            }
        }

        var type: TypeFacts {
            switch self {
            case .two: TypeFacts(oid: TypeOID.int2, name: "smallint")
            case .four: TypeFacts(oid: TypeOID.int4, name: "integer")
            case .eight: TypeFacts(oid: TypeOID.int8, name: "bigint")
            }
        }

        static func < (left: IntegerWidth, right: IntegerWidth) -> Bool { left.rawValue < right.rawValue }
    }

    enum FieldAddress: UInt8, Sendable, Hashable {
        case name, index, path
    }

    enum Quantity: UInt8, Sendable, Hashable {
        case one, any, all
    }
}

extension Function {
    /// Of NULL it makes NULL.
    var isStrict: Bool {
        switch operation {
        case .failure, .moment, .split: false
        default: true
        }
    }

    /// It has another value at another time.
    var readsClock: Bool { operation == .moment }

    /// Whether applying it to values of its types may be an error.
    var mayFail: Bool {
        switch operation {
        case .failure, .arithmetic, .parse, .parseJSON, .narrow, .part, .shiftMoment, .midnight, .concatenate, .like:
            true
        default: false
        }
    }

    /// Whether there are values for which only PostgreSQL knows; not counted is what is beyond all measure, or no text
    /// of the type.
    var mayAsk: Bool {
        switch operation {
        case .compare(let comparison, let comparator, _): comparison.isOrder && comparator.kind == .enumeration
        case .fold(_, let folding): folding == .ofASCII
        case .field(let address, _, let isBinary): address != .name || !isBinary
        case .shiftMoment(_, let isUTC): !isUTC
        case .like, .parse, .parseJSON, .name, .float, .midnight, .zoneOfUTC, .split, .part, .trim: true
        case .failure, .moment, .compareFloats, .compareMoments, .contains, .isContained, .overlaps, .concatenate,
            .arithmetic, .hasName, .relabel, .withoutBlanks, .truthWord, .narrow, .length, .replace, .startsWith,
            .arrayLength, .cardinality:
            false
        }
    }

    /// A term that always fails.
    static let failure = Term.apply(Function(.boolean, .failure), [])
}

extension TypeFacts {
    static let boolean = TypeFacts(oid: TypeOID.bool, name: "boolean")
    static let text = TypeFacts(oid: TypeOID.text, name: "text")
    static let integer = TypeFacts(oid: TypeOID.int4, name: "integer")
    static let jsonb = TypeFacts(oid: TypeOID.jsonb, name: "jsonb")
    static let timestamptz = TypeFacts(oid: TypeOID.timestamptz, name: "timestamp with time zone")
    static let textArray = TypeFacts(oid: TypeOID.textArray, name: "text[]", shape: .array(of: .text))

    var isText: Bool { oid == TypeOID.text || oid == TypeOID.varchar }

    var isJSON: Bool { oid == TypeOID.json || oid == TypeOID.jsonb }

    var isTextArray: Bool {
        if case .array(let element) = shape { return element.oid == TypeOID.text }
        return false
    }

    var element: TypeFacts? {
        if case .array(let element) = shape { return element }
        return nil
    }
}
