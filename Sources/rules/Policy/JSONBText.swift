import Bytes

/// Comparisons of `jsonb` values in PostgreSQL's text form. In that form an object has each name once, in a fixed
/// order. So the texts of equal values differ only in trailing zeros of numbers.
enum JSONBText {
    /// Maximum nesting of a value. The hub asks PostgreSQL about values that are nested more deeply.
    private static let maximumDepth = 64

    static func equal(_ left: RawSpan, _ right: RawSpan) -> Bool? {
        var (a, b) = (0, 0)
        while true {
            a = skipBlanks(left, a)
            b = skipBlanks(right, b)
            guard a < left.byteCount, b < right.byteCount else {
                return a == left.byteCount && b == right.byteCount
            }
            guard let endA = tokenEnd(left, a), let endB = tokenEnd(right, b) else { return nil }
            assert(endA > a && endB > b, "a token of nothing, which would be read for ever")
            guard equalTokens(left.extracting(a..<endA), right.extracting(b..<endB)) else { return false }
            (a, b) = (endA, endB)
        }
    }

    private static func equalTokens(_ a: RawSpan, _ b: RawSpan) -> Bool {
        if isNumber(a.byte(0)), isNumber(b.byte(0)) { return NumericText.compare(a, b) == 0 }
        return a.equals(b)
    }

    private static func isNumber(_ byte: UInt8) -> Bool { byte == UInt8(ascii: "-") || (48...57).contains(byte) }

    private static func skipBlanks(_ text: RawSpan, _ start: Int) -> Int {
        var at = start
        while at < text.byteCount, text.byte(at) == 0x20 { at += 1 }
        assert(at >= start, "blanks that lead back")
        return at
    }

    /// Returns the end of the token at `start`. A token is a string, a number, a word, or a single punctuation mark.
    private static func tokenEnd(_ text: RawSpan, _ start: Int) -> Int? {
        switch text.byte(start) {
        case UInt8(ascii: "\""): return ArrayText.quoteEnd(text, start)
        case UInt8(ascii: "{"), UInt8(ascii: "}"), UInt8(ascii: "["), UInt8(ascii: "]"), UInt8(ascii: ","),
            UInt8(ascii: ":"):
            return start + 1
        default:
            var at = start + 1
            while at < text.byteCount, !isDelimiter(text.byte(at)) { at += 1 }
            return at
        }
    }

    private static func isDelimiter(_ byte: UInt8) -> Bool { " ,:]}".utf8.contains(byte) }
}

// MARK: Containment

extension JSONBText {
    private enum Kind {
        case object, array, scalar
    }

    private static func kind(_ text: RawSpan) -> Kind? {
        guard text.byteCount > 0 else { return nil }
        switch text.byte(0) {
        case UInt8(ascii: "{"): return .object
        case UInt8(ascii: "["): return .array
        default: return .scalar
        }
    }

    /// Evaluates `@>` like PostgreSQL's `JsonbDeepContains`: true if `whole` has the members and elements of `part` at
    /// the same depth. An array also contains a single scalar that is one of its elements. Nil if only PostgreSQL
    /// knows.
    static func contains(_ whole: RawSpan, _ part: RawSpan) -> Bool? {
        guard let outer = kind(whole), let inner = kind(part) else { return nil }
        if outer == .array, inner == .scalar { return hasElement(whole, part, maximumDepth) }
        return contains(whole, part, maximumDepth)
    }

    private static func contains(_ whole: RawSpan, _ part: RawSpan, _ depth: Int) -> Bool? {
        assert(depth <= maximumDepth, "deeper than a value may be")
        guard depth > 0, let outer = kind(whole), let inner = kind(part) else { return nil }
        guard outer == inner else { return false }
        switch outer {
        case .scalar: return equal(whole, part)
        case .array: return containsElements(whole, part, depth)
        case .object: return containsMembers(whole, part, depth)
        }
    }

    private static func containsElements(_ whole: RawSpan, _ part: RawSpan, _ depth: Int) -> Bool? {
        var wanted = Items(part)
        while wanted.advance() {
            switch hasElement(whole, wanted.value, depth) {
            case true?: break
            case let answer: return answer
            }
        }
        return wanted.isWellFormed ? true : nil
    }

    private static func hasElement(_ whole: RawSpan, _ wanted: RawSpan, _ depth: Int) -> Bool? {
        var elements = Items(whole)
        while elements.advance() {
            switch contains(elements.value, wanted, depth - 1) {
            case false?: break
            case let answer: return answer
            }
        }
        return elements.isWellFormed ? false : nil
    }

    private static func containsMembers(_ whole: RawSpan, _ part: RawSpan, _ depth: Int) -> Bool? {
        var wanted = Items(part)
        while wanted.advance() {
            switch hasMember(whole, wanted.name, wanted.value, depth) {
            case true?: break
            case let answer: return answer
            }
        }
        return wanted.isWellFormed ? true : nil
    }

    private static func hasMember(_ whole: RawSpan, _ name: RawSpan, _ value: RawSpan, _ depth: Int) -> Bool? {
        var members = Items(whole)
        while members.advance() {
            if members.name.equals(name) { return contains(members.value, value, depth - 1) }
        }
        return members.isWellFormed ? false : nil
    }

    /// Cursor over the direct members of an object or the direct elements of an array.
    private struct Items: ~Escapable {
        private let text: RawSpan
        private var at = 1
        /// Name of the member with its quotes; empty in an array.
        private(set) var name: RawSpan
        private(set) var value: RawSpan
        private(set) var isWellFormed = true

        @_lifetime(copy text)
        init(_ text: RawSpan) {
            self.text = text
            name = text.extracting(0..<0)
            value = text.extracting(0..<0)
        }

        @_lifetime(self: copy self)
        mutating func advance() -> Bool {
            at = JSONBText.skipBlanks(text, at)
            if at == text.byteCount - 1 { return false }
            guard let item = item() else {
                isWellFormed = false
                return false
            }
            name = text.extracting(item.name)
            value = text.extracting(item.value)
            return true
        }

        @_lifetime(self: copy self)
        private mutating func item() -> (name: Range<Int>, value: Range<Int>)? {
            var name = 0..<0
            if text.byte(0) == UInt8(ascii: "{") {
                guard at < text.byteCount, let end = JSONBText.tokenEnd(text, at), end < text.byteCount else {
                    return nil
                }
                name = at..<end
                at = JSONBText.skipBlanks(text, end + 1)
            }
            guard let end = valueEnd() else { return nil }
            assert(end > at, "a value of nothing, which would be read for ever")
            let value = at..<end
            at = end
            if at < text.byteCount, text.byte(at) == UInt8(ascii: ",") { at += 1 }
            return (name, value)
        }

        private func valueEnd() -> Int? {
            var depth = 0
            var place = at
            while place < text.byteCount {
                let byte = text.byte(place)
                guard let end = JSONBText.tokenEnd(text, place) else { return nil }
                if byte == UInt8(ascii: "{") || byte == UInt8(ascii: "[") { depth += 1 }
                if byte == UInt8(ascii: "}") || byte == UInt8(ascii: "]") { depth -= 1 }
                if depth < 0 { return nil }
                place = end
                if depth == 0 { return place }
                place = JSONBText.skipBlanks(text, place)
            }
            return nil
        }
    }
}
