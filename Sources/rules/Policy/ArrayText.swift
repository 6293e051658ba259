import Bytes

/// Parser and comparisons of arrays in PostgreSQL's text form, such as `{1,NULL,"a b"}`, `{{1,2},{3,4}}` or
/// `[0:1]={7,8}`.
enum ArrayText {
    /// Size and lower bound of each dimension of an array.
    struct Shape {
        var dimensions = 0
        var sizes = InlineArray<6, Int64>(repeating: 0)
        var lowerBounds = InlineArray<6, Int64>(repeating: 1)
        /// Byte offset of the array's first brace in the text.
        var body = 0

        var count: Int64 {
            assert(dimensions <= 6, "more dimensions than PostgreSQL has")
            guard dimensions > 0 else { return 0 }
            return (0..<dimensions).reduce(1) { $0 &* sizes[$1] }
        }
    }

    /// Returns the shape of the array; nil if the text is not an array.
    static func shape(_ text: RawSpan) -> Shape? {
        var shape = Shape()
        guard readBounds(text, &shape) else { return nil }
        let body = shape.body
        assert(body >= 0, "an array that begins before its text")
        guard body < text.byteCount, text.byte(body) == UInt8(ascii: "{") else { return nil }
        guard text.byteCount - body > 2 else { return text.byteCount - body == 2 ? shape : nil }
        return readSizes(text, &shape) ? shape : nil
    }

    /// Reads bounds such as `[0:1][2:3]=`. PostgreSQL writes them only if a lower bound is not 1.
    private static func readBounds(_ text: RawSpan, _ shape: inout Shape) -> Bool {
        var at = 0
        var dimension = 0
        while at < text.byteCount, text.byte(at) == UInt8(ascii: "[") {
            guard dimension < 6, let colon = find(UInt8(ascii: ":"), text, at),
                let end = find(UInt8(ascii: "]"), text, colon),
                let lower = IntegerText.value(text.extracting(at + 1..<colon))
            else { return false }
            shape.lowerBounds[dimension] = lower
            dimension += 1
            at = end + 1
        }
        if dimension > 0 {
            guard at < text.byteCount, text.byte(at) == UInt8(ascii: "=") else { return false }
            at += 1
        }
        shape.body = at
        return true
    }

    private static func find(_ byte: UInt8, _ text: RawSpan, _ start: Int) -> Int? {
        var at = start
        while at < text.byteCount {
            if text.byte(at) == byte { return at }
            at += 1
        }
        return nil
    }

    /// Counts the elements in the first group of each depth. That is sufficient, because arrays are rectangular.
    private static func readSizes(_ text: RawSpan, _ shape: inout Shape) -> Bool {
        var depth = 0
        var at = shape.body
        while at < text.byteCount, depth < 6, text.byte(at) == UInt8(ascii: "{") {
            depth += 1
            at += 1
        }
        assert(depth >= 1 && depth <= 6, "an array opens at least one brace")
        shape.dimensions = depth
        for dimension in 0..<depth { shape.sizes[dimension] = 1 }
        // Depth down to which all enclosing groups are the first of their depth.
        var opened = depth
        while at < text.byteCount {
            switch text.byte(at) {
            case UInt8(ascii: "\""):
                guard let end = quoteEnd(text, at) else { return false }
                at = end
                continue
            case UInt8(ascii: "{"): depth += 1
            case UInt8(ascii: "}"):
                depth -= 1
                opened = min(opened, depth)
            case UInt8(ascii: ",") where depth > 0 && depth <= opened: shape.sizes[depth - 1] += 1
            default: break
            }
            at += 1
        }
        return depth == 0
    }

    /// Returns the byte offset after the quoted text that begins at `start`; nil if no quote ends it.
    static func quoteEnd(_ text: RawSpan, _ start: Int) -> Int? {
        assert(text.byte(start) == UInt8(ascii: "\""), "a quote that does not open")
        var at = start + 1
        while at < text.byteCount {
            switch text.byte(at) {
            case UInt8(ascii: "\\"): at += 2
            case UInt8(ascii: "\""): return at + 1
            default: at += 1
            }
        }
        return nil
    }
}

/// Element of an array, in the text of the array. Escapes are not removed yet.
enum ArrayElement: ~Escapable {
    case null
    case plain(RawSpan)
    case escaped(RawSpan)

    var isNull: Bool {
        switch self {
        case .null: true
        case .plain, .escaped: false
        }
    }

    /// Calls `body` with the element's text, after removing its escapes. The text of NULL is empty.
    func withText<Result>(_ body: (RawSpan) -> Result) -> Result {
        switch self {
        case .null: return body(RawSpan())
        case .plain(let text): return body(text)
        case .escaped(let text):
            let bytes = Self.unescaped(text)
            // SAFETY: any byte is a valid UInt8, and the span lives for the call.
            return body(unsafe bytes.span.bytes)
        }
    }

    private static func unescaped(_ text: RawSpan) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.byteCount)
        var at = 0
        while at < text.byteCount {
            if text.byte(at) == UInt8(ascii: "\\"), at + 1 < text.byteCount { at += 1 }
            bytes.append(text.byte(at))
            at += 1
        }
        assert(bytes.count <= text.byteCount, "escapes are longer than what they stand for")
        return bytes
    }
}

/// Iterator over the elements of an array of any number of dimensions, in their stored order.
struct ArrayElements: ~Escapable {
    private let text: RawSpan
    private var at: Int

    /// Creates an iterator over `text`, whose shape must be `shape`.
    @_lifetime(copy text)
    init(_ text: RawSpan, _ shape: ArrayText.Shape) {
        self.text = text
        at = shape.body
    }

    @_lifetime(copy self)
    mutating func next() -> ArrayElement? {
        while at < text.byteCount, Self.isStructure(text.byte(at)) { at += 1 }
        guard at < text.byteCount else { return nil }
        return text.byte(at) == UInt8(ascii: "\"") ? quoted() : bare()
    }

    private static func isStructure(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "{") || byte == UInt8(ascii: "}") || byte == UInt8(ascii: ",")
    }

    @_lifetime(copy self)
    private mutating func quoted() -> ArrayElement? {
        guard let end = ArrayText.quoteEnd(text, at) else { return nil }
        assert(end >= at + 2 && end <= text.byteCount, "an element that ends before it begins")
        let inside = text.extracting(at + 1..<end - 1)
        at = end
        for index in 0..<inside.byteCount where inside.byte(index) == UInt8(ascii: "\\") { return .escaped(inside) }
        return .plain(inside)
    }

    @_lifetime(copy self)
    private mutating func bare() -> ArrayElement? {
        let start = at
        while at < text.byteCount, !Self.isStructure(text.byte(at)) { at += 1 }
        assert(at > start, "an element of nothing, which would be found for ever")
        let element = text.extracting(start..<at)
        return element.equals("NULL") ? .null : .plain(element)
    }
}

// MARK: Comparing

extension ArrayText {
    /// Returns the elements of an array of any number of dimensions; nil stands for NULL. Returns nil if the text is
    /// not an array.
    static func elements(_ bytes: [UInt8]) -> [[UInt8]?]? {
        // SAFETY: any byte is a valid UInt8, and the span lives as long as the bytes.
        let text = unsafe bytes.span.bytes
        guard let shape = shape(text) else { return nil }
        var cursor = ArrayElements(text, shape)
        var elements: [[UInt8]?] = []
        while let element = cursor.next() {
            elements.append(element.isNull ? nil : element.withText { $0.copied() })
        }
        return elements
    }

    /// Compares like PostgreSQL's `array_eq`: the bounds count too, and NULL equals NULL. Nil if only PostgreSQL knows.
    static func equal(_ left: RawSpan, _ right: RawSpan, by comparator: Comparator) -> Bool? {
        guard let a = shape(left), let b = shape(right) else { return nil }
        guard compareShapes(a, b) == 0 else { return false }
        assert(a.count == b.count, "equal shapes hold as many elements")
        var (lefts, rights) = (ArrayElements(left, a), ArrayElements(right, b))
        while let one = lefts.next(), let other = rights.next() {
            guard one.isNull == other.isNull else { return false }
            guard !one.isNull else { continue }
            switch equal(one, other, comparator) {
            case true?: break
            case let answer: return answer
            }
        }
        return true
    }

    private static func equal(
        _ one: borrowing ArrayElement, _ other: borrowing ArrayElement, _ comparator: Comparator
    ) -> Bool? {
        one.withText { a in other.withText { b in comparator.equalElements(a, b) } }
    }

    /// Compares like PostgreSQL's `array_cmp`: first the elements, with NULL after all values, then the shapes. Nil if
    /// only PostgreSQL knows.
    static func order(
        _ left: RawSpan, _ right: RawSpan, by comparator: Comparator, _ constants: borrowing Constants
    ) -> Int? {
        guard let a = shape(left), let b = shape(right) else { return nil }
        var (lefts, rights) = (ArrayElements(left, a), ArrayElements(right, b))
        while let one = lefts.next(), let other = rights.next() {
            if one.isNull || other.isNull {
                if one.isNull != other.isNull { return one.isNull ? 1 : -1 }
                continue
            }
            guard let order = order(one, other, comparator, constants) else { return nil }
            if order != 0 { return order }
        }
        return compareShapes(a, b)
    }

    private static func order(
        _ one: borrowing ArrayElement, _ other: borrowing ArrayElement, _ comparator: Comparator,
        _ constants: borrowing Constants
    ) -> Int? {
        // Elements with the same text are equal, even if the hub does not know the order of their type.
        one.withText { a in
            other.withText { b in
                a.equals(b) ? 0 : comparator.orderElements(a, b, constants)
            }
        }
    }

    private static func compareShapes(_ a: Shape, _ b: Shape) -> Int {
        if a.count != b.count { return a.count < b.count ? -1 : 1 }
        if a.dimensions != b.dimensions { return a.dimensions - b.dimensions }
        for index in 0..<a.dimensions where a.sizes[index] != b.sizes[index] {
            return a.sizes[index] < b.sizes[index] ? -1 : 1
        }
        for index in 0..<a.dimensions where a.lowerBounds[index] != b.lowerBounds[index] {
            return a.lowerBounds[index] < b.lowerBounds[index] ? -1 : 1
        }
        return 0
    }

    /// Evaluates `@>`: true if each element of `part` equals an element of `whole`. NULL equals nothing, and the shapes
    /// do not matter. Nil if only PostgreSQL knows.
    static func contains(_ whole: RawSpan, _ part: RawSpan, by comparator: Comparator) -> Bool? {
        guard let a = shape(whole), let b = shape(part) else { return nil }
        var wanted = ArrayElements(part, b)
        while let element = wanted.next() {
            switch has(whole, a, element, comparator) {
            case true?: break
            case let answer: return answer
            }
        }
        return true
    }

    /// Evaluates `&&`: true if some element of one array equals one of the other. Nil if only PostgreSQL knows.
    static func overlaps(_ left: RawSpan, _ right: RawSpan, by comparator: Comparator) -> Bool? {
        guard let a = shape(left), let b = shape(right) else { return nil }
        var candidates = ArrayElements(right, b)
        while let element = candidates.next() {
            switch has(left, a, element, comparator) {
            case false?: break
            case let answer: return answer
            }
        }
        return false
    }

    /// Evaluates `value = ANY (array)`.
    static func has(_ array: RawSpan, _ value: RawSpan, by comparator: Comparator) -> Truth {
        guard let shape = shape(array) else { return .ask }
        var elements = ArrayElements(array, shape)
        var result = Truth.no
        while let element = elements.next() {
            if element.isNull {
                result = result.or(.unknown)
                continue
            }
            switch element.withText({ comparator.equalElements($0, value) }) {
            case true?: return .yes
            case false?: break
            case nil: result = result.or(.ask)
            }
        }
        return result
    }

    private static func has(
        _ text: RawSpan, _ shape: Shape, _ wanted: borrowing ArrayElement, _ comparator: Comparator
    ) -> Bool? {
        guard !wanted.isNull else { return false }
        var elements = ArrayElements(text, shape)
        while let element = elements.next() {
            guard !element.isNull else { continue }
            switch equal(element, wanted, comparator) {
            case false?: break
            case let answer: return answer
            }
        }
        return false
    }
}
