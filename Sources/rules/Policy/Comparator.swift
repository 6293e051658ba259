import Bytes

/// Comparator for the values of one column. It works on their texts, with the same results as PostgreSQL's functions.
///
/// A method returns nil if only PostgreSQL knows the answer. Memory is allocated only for array elements that are
/// written with escapes.
struct Comparator: Sendable, Hashable {
    enum Kind: UInt8, Sendable {
        /// Equality and order are those of the bytes.
        case bytes
        /// Equality is that of the bytes; only PostgreSQL knows the order.
        case bytesUnordered
        case blankPadded
        case blankPaddedUnordered
        case integer
        case numeric
        case float4
        case float8
        case date
        case timestamp
        case timeWithZone
        case interval
        case enumeration
        case jsonb
        /// Values that only PostgreSQL can compare.
        case opaque
    }

    var kind: Kind
    /// True if the values are arrays. `kind` is then that of their elements.
    var isArray: Bool
    /// Index of the enumeration's first label among the predicate's constants.
    var firstLabel: Int32 = 0
    var labelCount: Int32 = 0

    init(_ kind: Kind, isArray: Bool = false) {
        precondition(!isArray || kind != .opaque, "an array whose elements nobody here can compare")
        self.kind = kind
        self.isArray = isArray
    }

    init(_ column: ColumnFacts) {
        if case .array(let element) = column.type.shape {
            let kind = Self.kind(of: element, column.collation)
            self.init(kind, isArray: kind != .opaque)
        } else {
            self.init(Self.kind(of: column.type, column.collation))
        }
    }

    private static func kind(of type: TypeFacts, _ collation: Collation) -> Kind {
        switch type.shape {
        case .enumeration: .enumeration
        case .array, .other: .opaque
        case .base: kind(of: type.oid, collation)
        }
    }

    private static func kind(of oid: UInt32, _ collation: Collation) -> Kind {
        switch oid {
        case TypeOID.bool, TypeOID.uuid, TypeOID.bytea, TypeOID.time, TypeOID.macaddr, TypeOID.macaddr8, TypeOID.bit,
            TypeOID.varbit:
            .bytes
        case TypeOID.int2, TypeOID.int4, TypeOID.int8, TypeOID.oid: .integer
        case TypeOID.numeric: .numeric
        case TypeOID.float4: .float4
        case TypeOID.float8: .float8
        case TypeOID.text, TypeOID.varchar, TypeOID.name: text(collation, .bytes, .bytesUnordered)
        case TypeOID.bpchar: text(collation, .blankPadded, .blankPaddedUnordered)
        case TypeOID.date: .date
        case TypeOID.timestamp, TypeOID.timestamptz: .timestamp
        case TypeOID.timetz: .timeWithZone
        case TypeOID.interval: .interval
        case TypeOID.jsonb: .jsonb
        case TypeOID.char, TypeOID.inet, TypeOID.cidr: .bytesUnordered
        default: .opaque
        }
    }

    private static func text(_ collation: Collation, _ ordered: Kind, _ unordered: Kind) -> Kind {
        switch collation {
        case .bytewise: ordered
        case .deterministic: unordered
        case .none, .nondeterministic: .opaque
        }
    }
}

// MARK: Capabilities

extension Comparator {
    /// Form in which equal values have equal bytes. Nil if the type has no such form that is a part of the text itself.
    var keyForm: KeyForm? {
        guard !isArray else { return nil }
        switch kind {
        case .bytes, .bytesUnordered, .integer, .date, .timestamp, .timeWithZone, .enumeration: return .asIs
        case .blankPadded, .blankPaddedUnordered: return .bpchar
        case .numeric: return .numeric
        case .float4, .float8: return .float
        case .interval, .jsonb, .opaque: return nil
        }
    }

    /// True if the comparator knows the order of values, not only their equality.
    var isOrdered: Bool {
        switch kind {
        case .bytesUnordered, .blankPaddedUnordered, .jsonb, .opaque: false
        default: true
        }
    }

    /// True if the comparator can evaluate if one value contains another.
    var hasContainment: Bool { isArray || kind == .jsonb }

    /// True if the hub can evaluate LIKE for values of this type: a text type whose equality is that of the bytes. LIKE
    /// compares the characters themselves.
    func takesPatterns(_ type: TypeFacts) -> Bool {
        guard !isArray else { return false }
        switch type.oid {
        case TypeOID.text, TypeOID.varchar, TypeOID.name, TypeOID.bpchar: return kind != .opaque
        default: return false
        }
    }
}

// MARK: Comparing

extension Comparator {
    func equal(_ left: RawSpan, _ right: RawSpan) -> Bool? {
        assert(!isArray || keyForm == nil, "an array with a key's form")
        return isArray ? ArrayText.equal(left, right, by: self) : equalElements(left, right)
    }

    func equalElements(_ left: RawSpan, _ right: RawSpan) -> Bool? {
        switch kind {
        case .opaque: return nil
        case .jsonb: return JSONBText.equal(left, right)
        case .interval:
            guard let a = IntervalText.span(left), let b = IntervalText.span(right) else { return nil }
            return a == b
        default:
            guard let form = Comparator(kind).keyForm else { preconditionFailure("a kind without an equality") }
            return form.canonical(left).equals(form.canonical(right))
        }
    }

    /// Compares two values. Returns a negative number, zero or a positive number; nil if only PostgreSQL knows the
    /// order.
    func order(_ left: RawSpan, _ right: RawSpan, _ constants: borrowing Constants) -> Int? {
        isArray ? ArrayText.order(left, right, by: self, constants) : orderElements(left, right, constants)
    }

    func orderElements(_ left: RawSpan, _ right: RawSpan, _ constants: borrowing Constants) -> Int? {
        switch kind {
        case .bytes: ByteOrder.compare(left, right)
        case .blankPadded: ByteOrder.compare(KeyForm.bpchar.canonical(left), KeyForm.bpchar.canonical(right))
        case .numeric: NumericText.compare(left, right)
        case .integer: Self.order(IntegerText.value(left), IntegerText.value(right))
        case .float4: FloatText.compare(FloatText.float(left), FloatText.float(right))
        case .float8: FloatText.compare(FloatText.double(left), FloatText.double(right))
        case .date: Self.order(DateText.days(left), DateText.days(right))
        case .timestamp: Self.order(DateText.microseconds(left), DateText.microseconds(right))
        case .timeWithZone: ClockText.compare(left, right)
        case .interval: Self.order(IntervalText.span(left), IntervalText.span(right))
        case .enumeration: Self.order(label(left, constants), label(right, constants))
        case .bytesUnordered, .blankPaddedUnordered, .jsonb, .opaque: nil
        }
    }

    private static func order<Value: Comparable>(_ left: Value?, _ right: Value?) -> Int? {
        guard let left, let right else { return nil }
        return left < right ? -1 : left > right ? 1 : 0
    }

    /// Returns the position of a label in the enumeration's order; nil for a label that was added later.
    private func label(_ text: RawSpan, _ constants: borrowing Constants) -> Int32? {
        assert(kind == .enumeration && firstLabel >= 0 && labelCount >= 0, "labels of what has none")
        for index in 0..<labelCount where constants[firstLabel + index].equals(text) { return index }
        return nil
    }
}

/// Constants of a predicate, read in place from the predicate's pool of bytes.
struct Constants: ~Escapable {
    private let places: Span<Predicate.Constant>
    private let pool: RawSpan

    @_lifetime(copy places, copy pool)
    init(_ places: Span<Predicate.Constant>, _ pool: RawSpan) {
        self.places = places
        self.pool = pool
    }

    subscript(index: Int32) -> RawSpan {
        @_lifetime(copy self)
        get {
            let place = places[Int(index)]
            return pool.extracting(Int(place.start)..<Int(place.start) + Int(place.length))
        }
    }
}

enum ByteOrder {
    /// Compares bytes like `memcmp`; if one text begins with the other, the shorter comes first.
    static func compare(_ left: RawSpan, _ right: RawSpan) -> Int {
        let common = min(left.byteCount, right.byteCount)
        var at = 0
        while at < common {
            let (a, b) = (left.byte(at), right.byte(at))
            if a != b { return a < b ? -1 : 1 }
            at &+= 1
        }
        return left.byteCount - right.byteCount
    }
}
