import Bytes

/// How values of one column are compared in process: what PostgreSQL's own functions for the type do, on texts.
///
/// An answer is nil where only PostgreSQL has it. Nothing here takes memory.
struct Comparator: Sendable, Hashable {
    enum Kind: UInt8, Sendable {
        /// Equality and order are those of the bytes.
        case bytes
        /// Equality is that of the bytes, the order is PostgreSQL's to say.
        case bytesUnordered
        case blankPadded
        case blankPaddedUnordered
        case integer
        case numeric
        /// Compared by PostgreSQL alone.
        case opaque
    }

    var kind: Kind
    var isArray = false

    /// How equal values become equal bytes, where a piece of the text can be that.
    var keyForm: KeyForm? {
        guard !isArray else { return nil }
        switch kind {
        case .bytes, .bytesUnordered, .integer: return .asIs
        case .blankPadded, .blankPaddedUnordered: return .bpchar
        case .numeric: return .numeric
        case .opaque: return nil
        }
    }

    /// Whether an order is known, and not only equality.
    var isOrdered: Bool {
        switch kind {
        case .bytesUnordered, .blankPaddedUnordered, .opaque: false
        default: true
        }
    }

    init(_ kind: Kind, isArray: Bool = false) {
        self.kind = kind
        self.isArray = isArray
    }

    init(_ column: ColumnFacts) {
        self.init(Self.kind(of: column.type, column.collation))
    }

    private static func kind(of type: TypeFacts, _ collation: Collation) -> Kind {
        switch type.shape {
        case .enumeration: return .bytesUnordered
        case .array, .other: return .opaque
        case .base: break
        }
        switch type.oid {
        case TypeOID.bool, TypeOID.uuid, TypeOID.bytea, TypeOID.time, TypeOID.macaddr, TypeOID.macaddr8, TypeOID.bit,
            TypeOID.varbit:
            return .bytes
        case TypeOID.int2, TypeOID.int4, TypeOID.int8, TypeOID.oid: return .integer
        case TypeOID.numeric: return .numeric
        case TypeOID.text, TypeOID.varchar, TypeOID.name: return text(collation, .bytes, .bytesUnordered)
        case TypeOID.bpchar: return text(collation, .blankPadded, .blankPaddedUnordered)
        case TypeOID.date, TypeOID.timestamp, TypeOID.timestamptz, TypeOID.timetz, TypeOID.char, TypeOID.inet,
            TypeOID.cidr:
            return .bytesUnordered
        default: return .opaque
        }
    }

    private static func text(_ collation: Collation, _ ordered: Kind, _ unordered: Kind) -> Kind {
        switch collation {
        case .bytewise: ordered
        case .deterministic: unordered
        case .none, .nondeterministic: .opaque
        }
    }

    func equal(_ left: RawSpan, _ right: RawSpan) -> Bool? {
        switch kind {
        case .bytes, .bytesUnordered, .integer: return left.equals(right)
        case .blankPadded, .blankPaddedUnordered:
            return KeyForm.bpchar.canonical(left).equals(KeyForm.bpchar.canonical(right))
        case .numeric: return KeyForm.numeric.canonical(left).equals(KeyForm.numeric.canonical(right))
        case .opaque: return nil
        }
    }

    /// Negative, zero or positive.
    func order(_ left: RawSpan, _ right: RawSpan) -> Int? {
        switch kind {
        case .bytes: return ByteOrder.compare(left, right)
        case .blankPadded:
            return ByteOrder.compare(KeyForm.bpchar.canonical(left), KeyForm.bpchar.canonical(right))
        case .integer:
            guard let a = IntegerText.value(left), let b = IntegerText.value(right) else { return nil }
            return a < b ? -1 : a > b ? 1 : 0
        case .numeric: return NumericText.compare(left, right)
        case .bytesUnordered, .blankPaddedUnordered, .opaque: return nil
        }
    }
}

enum ByteOrder {
    /// As `memcmp` and then the length.
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

/// Integers as PostgreSQL writes them.
enum IntegerText {
    static func value(_ text: RawSpan) -> Int64? {
        let isNegative = text.byteCount > 0 && text.byte(0) == UInt8(ascii: "-")
        var at = isNegative ? 1 : 0
        guard at < text.byteCount else { return nil }
        var value: Int64 = 0
        while at < text.byteCount {
            let digit = Int64(text.byte(at)) - 48
            guard (0...9).contains(digit) else { return nil }
            let (product, tooLarge) = value.multipliedReportingOverflow(by: 10)
            // Kept negative, since the smallest number has no positive counterpart.
            let (sum, overflow) = product.subtractingReportingOverflow(digit)
            guard !tooLarge, !overflow else { return nil }
            value = sum
            at += 1
        }
        if isNegative { return value }
        return value == .min ? nil : -value
    }
}

/// Numerics as PostgreSQL writes them: no exponent, no sign of zero, no zeros in front.
enum NumericText {
    private enum Rank: Int {
        case negativeInfinity, finite, infinity, notANumber
    }

    static func compare(_ left: RawSpan, _ right: RawSpan) -> Int? {
        guard let a = rank(left), let b = rank(right) else { return nil }
        guard a == .finite, b == .finite else { return a.rawValue - b.rawValue }
        let aNegative = left.byte(0) == UInt8(ascii: "-")
        let bNegative = right.byte(0) == UInt8(ascii: "-")
        guard aNegative == bNegative else { return aNegative ? -1 : 1 }
        let start = aNegative ? 1 : 0
        let order = compareMagnitudes(
            KeyForm.numeric.canonical(left).extracting(droppingFirst: start),
            KeyForm.numeric.canonical(right).extracting(droppingFirst: start))
        return aNegative ? -order : order
    }

    private static func rank(_ text: RawSpan) -> Rank? {
        guard text.byteCount > 0 else { return nil }
        switch text.byte(text.byteCount - 1) {
        case 48...57: return .finite
        case UInt8(ascii: "N"): return .notANumber
        default: return text.byte(0) == UInt8(ascii: "-") ? .negativeInfinity : .infinity
        }
    }

    /// Without sign, and without zeros at either end: the longer whole part is the larger number, and digits of the
    /// same weight stand at the same place.
    private static func compareMagnitudes(_ left: RawSpan, _ right: RawSpan) -> Int {
        let (a, b) = (wholeDigits(left), wholeDigits(right))
        return a == b ? ByteOrder.compare(left, right) : a - b
    }

    private static func wholeDigits(_ text: RawSpan) -> Int {
        var count = 0
        while count < text.byteCount, text.byte(count) != UInt8(ascii: ".") { count += 1 }
        return count
    }
}
