import Bytes

/// Form of a type's texts in which equal values have equal bytes. The form is always a part of the text itself, so the
/// hub can hash a value in place.
public enum KeyForm: UInt8, Sendable, Hashable {
    /// The text itself, because PostgreSQL writes equal values alike.
    case asIs
    /// The number without zeros at the end of the fraction, because 1.50 equals 1.5.
    case numeric
    /// The number without the sign of zero, because -0 equals 0.
    case float
    /// The text without blanks at the end.
    case bpchar

    @inlinable
    @_lifetime(copy text)
    public func canonical(_ text: RawSpan) -> RawSpan {
        switch self {
        case .asIs: text
        case .numeric: text.extracting(first: Self.numericLength(text))
        case .float: text.extracting(Self.isNegativeZero(text) ? 1..<2 : 0..<text.byteCount)
        case .bpchar: text.extracting(first: Self.lengthWithoutBlanks(text))
        }
    }

    @inlinable
    public func hash(_ text: RawSpan, seed: UInt64 = 0) -> UInt64 {
        var hash = KeyHash(seed: seed)
        hash.combine(canonical(text))
        return hash.value
    }

    /// True if the text has the given canonical form.
    @inlinable
    public func equals(_ text: RawSpan, canonical other: RawSpan) -> Bool {
        assert(canonical(other).byteCount == other.byteCount, "a key that is not canonical finds nothing")
        return canonical(text).equals(other)
    }

    @inlinable
    static func numericLength(_ text: RawSpan) -> Int {
        var length = text.byteCount
        var points = 0
        for index in 0..<length where text.byte(index) == UInt8(ascii: ".") { points &+= 1 }
        // A text with two points is not a number. If it were shortened once, it could be shortened again.
        guard points == 1 else { return length }
        while length > 0, text.byte(length &- 1) == UInt8(ascii: "0") { length &-= 1 }
        if length > 0, text.byte(length &- 1) == UInt8(ascii: ".") { length &-= 1 }
        assert(length >= 0 && length <= text.byteCount, "a form is a piece of its text")
        return length
    }

    @inlinable
    static func isNegativeZero(_ text: RawSpan) -> Bool {
        text.byteCount == 2 && text.byte(0) == UInt8(ascii: "-") && text.byte(1) == UInt8(ascii: "0")
    }

    @inlinable
    static func lengthWithoutBlanks(_ text: RawSpan) -> Int {
        var length = text.byteCount
        while length > 0, text.byte(length &- 1) == UInt8(ascii: " ") { length &-= 1 }
        return length
    }
}

/// Value of a column by which the index finds a predicate.
public struct EqualityKey: Sendable, Hashable {
    /// Part of the column's value that must equal the key.
    public enum Part: UInt8, Sendable, Hashable {
        case whole
        /// One of the elements of the column, which is an array.
        case element
        /// The first bytes of the column's value, as many as the key has.
        case prefix
    }

    public var slot: Int
    public var form: KeyForm
    /// Text of the value in its canonical form.
    public var bytes: [UInt8]
    public var part: Part

    public init(slot: Int, form: KeyForm, bytes: [UInt8], part: Part = .whole) {
        precondition(slot >= 0 && (part != .prefix || !bytes.isEmpty), "a key that is no value's")
        self.part = part
        self.slot = slot
        self.form = form
        self.bytes = bytes
    }
}

extension EqualityKey {
    /// Maximum length of a prefix. For each length that occurs among keys, every change needs one more lookup. So long
    /// prefixes are shortened to one of few lengths.
    public static let maximumPrefix = 128

    static func prefixLength(_ count: Int) -> Int {
        let length = count <= 32 ? count : min(count, maximumPrefix) / 16 * 16
        assert(length <= count && length <= maximumPrefix, "a prefix that is longer than its value")
        return length
    }

    /// Calls `body` with each element of the array, except for NULL and for elements written with escapes.
    public static func eachPlainElement(of array: RawSpan, _ body: (RawSpan) -> Void) {
        guard let shape = ArrayText.shape(array) else { return }
        var elements = ArrayElements(array, shape)
        while let element = elements.next() {
            if case .plain(let text) = element { body(text) }
        }
    }
}

/// Way in which an index finds the predicates that a row may satisfy.
public enum Access: Sendable, Hashable {
    case never
    case always
    /// The predicate is true only for rows with one of these keys.
    case anyOf([EqualityKey])
    /// The predicate can be true only for rows whose value is in the range. It must then be evaluated.
    case within(ValueRange)
    /// The predicate must be evaluated on every row.
    case scan
}
