/// Operator, function or cast that the hub can evaluate with the same results as PostgreSQL.
///
/// A function is created for certain types and a collation, and applied to texts. If it could differ from PostgreSQL,
/// the function is not created, or its result for the values in question is `cannot`.
public struct Function: Sendable, Hashable {
    /// Type of the result.
    public let result: TypeFacts
    let operation: Operation

    init(_ result: TypeFacts, _ operation: Operation) {
        self.result = result
        self.operation = operation
    }

    enum Operation: Sendable, Hashable {
        /// A call that always fails.
        case failure
        /// The SQL function `now()`.
        case moment
        case compare(Comparison, Comparator, labels: [[UInt8]])
        case compareFloats(Comparison, FloatWidth, FloatWidth)
        /// A comparison between two of date, timestamp and timestamptz.
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
        /// A cast that does not change the text.
        case relabel
        /// A cast from text. The text may have any form in which a client can write the value.
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

        /// Comparison that gives the same result when both sides are exchanged.
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

    /// Letters whose case a function ignores or changes.
    enum Folding: UInt8, Sendable, Hashable {
        case none
        /// Only the case of ASCII letters is ignored or changed. Other characters stay unchanged.
        case plain
        /// The case of ASCII letters is ignored or changed. The hub asks PostgreSQL about texts with other characters.
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
    /// True if the function returns NULL whenever an argument is NULL.
    var isStrict: Bool {
        switch operation {
        case .failure, .moment, .split: false
        default: true
        }
    }

    /// True if the value changes with time.
    var readsClock: Bool { operation == .moment }

    /// True if the function may raise an error for values of its argument types.
    var mayFail: Bool {
        switch operation {
        case .failure, .arithmetic, .parse, .parseJSON, .narrow, .part, .shiftMoment, .midnight, .concatenate, .like:
            true
        default: false
        }
    }

    /// True if only PostgreSQL knows the result for some values. Values that are too large, and texts that are not of
    /// the type, do not count.
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

    /// Term that always raises an error.
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
