import Bytes

/// The ways to bring texts of a type to one form in which equal values are equal bytes. Whatever the form, it is a piece
/// of the text itself, so a row's value is hashed where it lies.
public enum KeyForm: UInt8, Sendable, Hashable {
    /// PostgreSQL writes equal values alike.
    case asIs
    /// 1.50 = 1.5: zeros at the end of a fraction do not count.
    case numeric
    /// -0 = 0.
    case float
    /// Blanks at the end do not count.
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

    /// Whether a row's text is the value whose canonical bytes are given.
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
        // With a second point it is no number, and to shorten it would leave what can be shortened again.
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

/// A column's value by which a predicate is found.
public struct EqualityKey: Sendable, Hashable {
    /// The part of the column's value that is equal to the key.
    public enum Part: UInt8, Sendable, Hashable {
        case whole
        /// The column is an array, and it is one of its elements.
        case element
        /// Its first bytes, as many as the key has.
        case prefix
    }

    public var slot: Int
    public var form: KeyForm
    /// The value's text in its canonical form.
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
    /// Every length that keys have is one more lookup for each change: long ones are cut to few lengths.
    public static let maximumPrefix = 128

    static func prefixLength(_ count: Int) -> Int {
        let length = count <= 32 ? count : min(count, maximumPrefix) / 16 * 16
        assert(length <= count && length <= maximumPrefix, "a prefix that is longer than its value")
        return length
    }

    /// The elements of an array's text that stand in it as they are. NULL is none.
    public static func eachPlainElement(of array: RawSpan, _ body: (RawSpan) -> Void) {
        guard let shape = ArrayText.shape(array) else { return }
        var elements = ArrayElements(array, shape)
        while let element = elements.next() {
            if case .plain(let text) = element { body(text) }
        }
    }
}

/// The way in which an index reaches a predicate that may hold for a row.
public enum Access: Sendable, Hashable {
    case never
    case always
    /// It holds only where one of these does.
    case anyOf([EqualityKey])
    /// It holds only where a column's value lies there, and has to be tried then.
    case within(ValueRange)
    /// Every row has to be tried.
    case scan
}
