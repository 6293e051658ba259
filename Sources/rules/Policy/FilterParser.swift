/// Parser of a filter's text. It splits the text in the same order as Supabase Realtime, because clients can see the
/// order: error messages list the parts of the first split that failed.
struct FilterParser {
    private let bytes: [UInt8]
    private let bounds: Filter.Bounds
    private var at = 0
    private var conditionsLeft: Int

    init(_ bytes: [UInt8], within bounds: Filter.Bounds) {
        precondition(bytes.count <= bounds.bytes, "a text that is longer than its bounds")
        self.bytes = bytes
        self.bounds = bounds
        conditionsLeft = bounds.conditions
    }

    private typealias Piece = ArraySlice<UInt8>

    private static let comma = UInt8(ascii: ",")
    private static let dot = UInt8(ascii: ".")
    private static let quote = UInt8(ascii: "\"")
    private static let backslash = UInt8(ascii: "\\")
    private static let open = UInt8(ascii: "(")
    private static let close = UInt8(ascii: ")")
    private static let equals = UInt8(ascii: "=")

    mutating func filter() throws(FilterError) -> Filter? {
        guard !Self.trimmed(bytes[...]).isEmpty else { return nil }
        var parts: [Filter] = []
        repeat { parts.append(try segment()) } while passComma()
        precondition(at == bytes.count, "text behind the filter that nobody read")
        assert(conditionsLeft >= 0, "more conditions than are allowed")
        return parts.count == 1 ? parts[0] : .all(parts)
    }

    private mutating func passComma() -> Bool {
        guard at < bytes.count else { return false }
        precondition(bytes[at] == Self.comma, "a segment ends at a comma")
        at += 1
        return true
    }

    // MARK: Segments: `column=op.value` and, beyond the reference, `or=(…)`

    private mutating func segment() throws(FilterError) -> Filter {
        skipBlanks()
        if let head = groupHead(separator: Self.equals) {
            let group = try group(head, depth: 1)
            skipBlanks()
            guard at == bytes.count || bytes[at] == Self.comma else {
                throw FilterError("unexpected text after `\(head.name)` filter")
            }
            return group
        }
        let text = Self.trimmed(bytes[at..<segmentEnd()])
        at = segmentEnd()
        guard !text.isEmpty else {
            throw FilterError("filter must not contain empty segments (check for extra commas)")
        }
        guard let column = Self.split(text, at: Self.equals) else { throw .found([text]) }
        return try condition(column: column.before, column.after)
    }

    /// Returns the end of the segment at the current position: the next comma outside parentheses and quotes.
    private func segmentEnd() -> Int {
        var depth = 0
        var previous: UInt8 = 0
        var index = at
        while index < bytes.count {
            if let end = literalEnd(index, itemStart: at, separator: Self.equals) {
                index = end
                previous = 0
                continue
            }
            let byte = bytes[index]
            switch byte {
            case Self.comma where depth == 0: return index
            case Self.open: depth += 1
            case Self.close: depth = max(0, depth - 1)
            case Self.quote where Self.mayOpenQuote(previous):
                index = quoteEnd(index)
                previous = Self.quote
                continue
            default: break
            }
            previous = byte
            index += 1
        }
        return index
    }

    private static func mayOpenQuote(_ previous: UInt8) -> Bool {
        previous == dot || previous == open || previous == comma
    }

    /// Returns the offset after the quoted text that begins at `start`; the end of the whole text if no quote ends it.
    private func quoteEnd(_ start: Int) -> Int {
        assert(bytes[start] == Self.quote, "a quote that does not open")
        var index = start + 1
        while index < bytes.count {
            if bytes[index] == Self.backslash {
                index += 2
            } else if bytes[index] == Self.quote {
                return index + 1
            } else {
                index += 1
            }
        }
        return bytes.count
    }

    // MARK: Conditions

    private mutating func condition(column: Piece, _ rest: Piece) throws(FilterError) -> Filter {
        var rest = rest
        let isNegated = rest.starts(with: "not.".utf8)
        if isNegated { rest = rest.dropFirst(4) }
        if Self.namesColumn(rest), column.elementsEqual(FilterCondition.changed.utf8) {
            try countCondition()
            return .condition(
                FilterCondition(
                    FilterCondition.changed, .in, Self.unquoted(rest), isNegated: isNegated, isBare: true))
        }
        guard let parts = Self.split(rest, at: Self.dot) else { throw .found([rest]) }
        guard let comparison = FilterOperator(rawValue: Self.string(parts.before)) else {
            throw .found([parts.before, parts.after])
        }
        try countCondition()
        let value = try comparison == .in ? Self.list(parts.after) : Self.unquoted(parts.after)
        return .condition(FilterCondition(Self.string(column), comparison, value, isNegated: isNegated))
    }

    private mutating func countCondition() throws(FilterError) {
        guard conditionsLeft > 0 else { throw FilterError("filter has more than \(bounds.conditions) conditions") }
        conditionsLeft -= 1
    }

    /// True if the text behind `changed=` is the name of a column, not an operator with its value.
    private static func namesColumn(_ text: Piece) -> Bool {
        if text.first == quote { return text.count > 2 && text.last == quote }
        return !text.isEmpty && !text.contains(dot) && !text.contains(equals)
    }

    /// Splits a condition in a group at the dot behind its column's name. The name may begin with `old.`. But a column
    /// whose own name is `old` keeps its conditions: in `old.eq.1` an operator follows.
    private static func splitInGroup(_ text: Piece) -> (before: Piece, after: Piece)? {
        guard let short = split(text, at: dot), short.before.elementsEqual("old".utf8) else {
            return split(text, at: dot)
        }
        var rest = short.after
        if rest.starts(with: "not.".utf8) { rest = rest.dropFirst(4) }
        let word = rest.prefix { $0 != dot }
        if word.count <= longestOperator, FilterOperator(rawValue: string(word)) != nil { return short }
        guard let long = split(short.after, at: dot) else { return short }
        return (text[text.startIndex..<long.before.endIndex], long.after)
    }

    /// Number of bytes in the longest name of an operator.
    private static let longestOperator = FilterOperator.allCases.reduce(0) { max($0, $1.rawValue.utf8.count) }

    private static func list(_ value: Piece) throws(FilterError) -> String {
        guard value.count >= 2, value.first == open, value.last == close else {
            throw FilterError("`in` filter value must be wrapped by parentheses")
        }
        return "{" + string(value.dropFirst().dropLast()) + "}"
    }

    /// Returns the value without its quotes. If the value does not end with the closing quote, returns it unchanged.
    private static func unquoted(_ value: Piece) -> String {
        guard value.first == quote else { return string(value) }
        var inside: [UInt8] = []
        var index = value.startIndex + 1
        while index < value.endIndex {
            switch value[index] {
            case quote: return index + 1 == value.endIndex ? string(inside[...]) : string(value)
            case backslash where index + 1 < value.endIndex:
                index += 1
                inside.append(value[index])
            case let byte: inside.append(byte)
            }
            index += 1
        }
        return string(value)
    }

    // MARK: Groups

    private struct GroupHead {
        var name: String
        var isAny: Bool
        var isNegated: Bool
        /// Byte offset of the group's opening parenthesis.
        var start: Int
    }

    /// Reads the head of a group: `or=(` or `not.and=(` at the top level, `or(` or `not.and(` within a group. Nil if
    /// there is none. A column name in such a place is never followed by a parenthesis.
    private func groupHead(separator: UInt8?) -> GroupHead? {
        var start = at
        let isNegated = bytes[start...].starts(with: "not.".utf8)
        if isNegated { start += 4 }
        let isAny = bytes[start...].starts(with: "or".utf8)
        guard isAny || bytes[start...].starts(with: "and".utf8) else { return nil }
        start += isAny ? 2 : 3
        if let separator {
            guard start < bytes.count, bytes[start] == separator else { return nil }
            start += 1
        }
        guard start < bytes.count, bytes[start] == Self.open else { return nil }
        return GroupHead(name: isAny ? "or" : "and", isAny: isAny, isNegated: isNegated, start: start)
    }

    private mutating func group(_ head: GroupHead, depth: Int) throws(FilterError) -> Filter {
        guard depth <= bounds.depth else { throw FilterError("filter is nested deeper than \(bounds.depth) groups") }
        precondition(bytes[head.start] == Self.open && head.start >= at, "a group begins with its parenthesis")
        at = head.start + 1
        var parts: [Filter] = []
        repeat {
            parts.append(try element(depth: depth))
            skipBlanks()
            guard at < bytes.count else { throw FilterError("`\(head.name)` filter has no closing parenthesis") }
            at += 1
        } while bytes[at - 1] == Self.comma
        guard bytes[at - 1] == Self.close else { throw FilterError("unexpected text in `\(head.name)` filter") }
        precondition(!parts.isEmpty, "a group of nothing would hold for every row")
        let group: Filter = head.isAny ? .any(parts) : .all(parts)
        return head.isNegated ? .not(group) : group
    }

    private mutating func element(depth: Int) throws(FilterError) -> Filter {
        skipBlanks()
        if let head = groupHead(separator: nil) { return try group(head, depth: depth + 1) }
        let start = at
        let end = elementEnd()
        assert(end >= start && end <= bytes.count, "an element that ends before it begins")
        at = end
        let text = Self.trimmed(bytes[start..<end])
        guard !text.isEmpty else {
            throw FilterError("filter must not contain empty segments (check for extra commas)")
        }
        if text.first == Self.quote { return try quotedColumnCondition(text) }
        guard let column = Self.splitInGroup(text) else { throw .found([text]) }
        return try condition(column: column.before, column.after)
    }

    /// Parses a condition such as `"a.b".eq.1`. Within a group a dot ends the column's name, unless the name is quoted.
    private mutating func quotedColumnCondition(_ text: Piece) throws(FilterError) -> Filter {
        let end = quoteEnd(text.startIndex)
        guard end < text.endIndex, bytes[end] == Self.dot else { throw .found([text]) }
        let name = Self.unquoted(text[text.startIndex..<end])
        return try condition(column: Array(name.utf8)[...], text[(end + 1)...])
    }

    /// Returns the end of the element at the current position: a comma, or a parenthesis that the element did not open.
    private func elementEnd() -> Int {
        var depth = 0
        var previous = Self.comma
        var index = at
        while index < bytes.count {
            if let end = literalEnd(index, itemStart: at, separator: Self.dot) {
                index = end
                previous = 0
                continue
            }
            let byte = bytes[index]
            switch byte {
            case Self.comma where depth == 0: return index
            case Self.close where depth == 0: return index
            case Self.open: depth += 1
            case Self.close: depth -= 1
            case Self.quote where Self.mayOpenQuote(previous):
                index = quoteEnd(index)
                previous = Self.quote
                continue
            default: break
            }
            previous = byte
            index += 1
        }
        return index
    }

    // MARK: Literals of arrays, ranges and JSON

    /// Returns the end of the balanced literal that begins at `index`. Nil unless the value of an operator such as `cs`
    /// or `ov` begins there.
    private func literalEnd(_ index: Int, itemStart: Int, separator: UInt8) -> Int? {
        guard index > itemStart, bytes[index - 1] == Self.dot, Self.isBracket(bytes[index], opening: true) else {
            return nil
        }
        let head = bytes[itemStart..<index - 1]
        let split = separator == Self.dot ? Self.splitInGroup(head) : Self.split(head, at: separator)
        guard let column = split else { return nil }
        var name = column.after
        if name.starts(with: "not.".utf8) { name = name.dropFirst(4) }
        // The length is checked before the name is copied, because this code runs at every bracket after a dot.
        guard name.count <= 3, FilterOperator(rawValue: Self.string(name))?.takesLiteral == true else { return nil }
        return balancedEnd(index)
    }

    private func balancedEnd(_ start: Int) -> Int? {
        assert(Self.isBracket(bytes[start], opening: true), "a literal that does not open")
        var depth = 0
        var index = start
        while index < bytes.count {
            let byte = bytes[index]
            if byte == Self.quote {
                index = quoteEnd(index)
                continue
            }
            if Self.isBracket(byte, opening: true) { depth += 1 }
            if Self.isBracket(byte, opening: false) { depth -= 1 }
            index += 1
            if depth == 0 { return index }
        }
        return nil
    }

    /// True for an opening (or closing) bracket of any kind. A range may open with one kind and close with another,
    /// such as `[1,5)`.
    private static func isBracket(_ byte: UInt8, opening: Bool) -> Bool {
        (opening ? "{[(" : "}])").utf8.contains(byte)
    }

    // MARK: Bytes

    private mutating func skipBlanks() {
        while at < bytes.count, Self.isBlank(bytes[at]) { at += 1 }
    }

    private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0d).contains(byte) }

    private static func trimmed(_ piece: Piece) -> Piece {
        var piece = piece.drop(while: isBlank)
        while let last = piece.last, isBlank(last) { piece = piece.dropLast() }
        return piece
    }

    private static func split(_ piece: Piece, at separator: UInt8) -> (before: Piece, after: Piece)? {
        guard let place = piece.firstIndex(of: separator) else { return nil }
        return (piece[..<place], piece[(place + 1)...])
    }

    private static func string(_ piece: Piece) -> String { String(decoding: piece, as: UTF8.self) }
}
