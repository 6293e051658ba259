/// Canonical form of a value that a client wrote, which is the text that PostgreSQL would write. The hub converts types
/// for which that is simple. It asks PostgreSQL about other types and about doubtful texts.
enum CanonicalText {
    case ready([UInt8])
    case ask

    static func of(_ text: String, _ type: TypeFacts) throws(FilterRefusal) -> CanonicalText {
        if case .enumeration(let labels) = type.shape {
            // The enumeration may have a label that was added after the labels were read.
            return labels.contains(text) ? .ready(Array(text.utf8)) : .ask
        }
        guard type.shape == .base else { return .ask }
        switch type.oid {
        case TypeOID.int2: return try integer(text, Int64(Int16.min)...Int64(Int16.max), "smallint")
        case TypeOID.int4: return try integer(text, Int64(Int32.min)...Int64(Int32.max), "integer")
        case TypeOID.int8: return try integer(text, Int64.min...Int64.max, "bigint")
        case TypeOID.bool: return .ready(try boolean(text))
        case TypeOID.uuid: return .ready(try uuid(text))
        case TypeOID.text, TypeOID.varchar, TypeOID.bpchar: return .ready(Array(text.utf8))
        // PostgreSQL truncates a longer name, so it is asked.
        case TypeOID.name: return text.utf8.count < 64 ? .ready(Array(text.utf8)) : .ask
        case TypeOID.numeric: return numeric(text)
        default: return .ask
        }
    }

    /// True if the C function `isspace` accepts the byte.
    private static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0d).contains(byte) }

    private static func trimmed(_ text: String) -> ArraySlice<UInt8> {
        var bytes = Array(text.utf8)[...].drop(while: isSpace)
        while let last = bytes.last, isSpace(last) { bytes = bytes.dropLast() }
        return bytes
    }

    // MARK: Integers

    private static func integer(
        _ text: String, _ range: ClosedRange<Int64>, _ type: String
    ) throws(FilterRefusal) -> CanonicalText {
        var digits = trimmed(text)
        let isNegative = digits.first == UInt8(ascii: "-")
        if isNegative || digits.first == UInt8(ascii: "+") { digits = digits.dropFirst() }
        // Newer versions of PostgreSQL read 0x1f, 0b1 and 1_000, older ones do not.
        if digits.contains(where: { "_xXoObB".utf8.contains($0) }) { return .ask }
        guard !digits.isEmpty else { throw .syntax(type, text) }
        var value: Int64 = 0
        for digit in digits {
            guard (48...57).contains(digit) else { throw .syntax(type, text) }
            guard let next = appending(Int64(digit) - 48, to: value),
                range.contains(next) || next == -range.upperBound - 1
            else { throw .outOfRange(type, text) }
            value = next
        }
        if !isNegative {
            guard value != .min, range.contains(-value) else { throw .outOfRange(type, text) }
            value = -value
        }
        precondition(range.contains(value), "a number that its type does not have")
        return .ready(Array(String(value).utf8))
    }

    /// Appends a digit to a negative value. Values are negative here, because the smallest number has no positive
    /// counterpart. Nil if the result is too large.
    private static func appending(_ digit: Int64, to value: Int64) -> Int64? {
        assert(value <= 0 && (0...9).contains(digit), "kept negative, and by one digit more")
        let (product, tooLarge) = value.multipliedReportingOverflow(by: 10)
        let (sum, overflow) = product.subtractingReportingOverflow(digit)
        return tooLarge || overflow ? nil : sum
    }

    // MARK: Boolean and uuid

    private static func boolean(_ text: String) throws(FilterRefusal) -> [UInt8] {
        let word = trimmed(text).map { (0x41...0x5a).contains($0) ? $0 + 32 : $0 }
        let truths = ["true", "yes", "on", "1"]
        let untruths = ["false", "no", "off", "0"]
        // PostgreSQL accepts an abbreviation of a word if it is not one of another word too.
        let isClear = !word.isEmpty && word != [UInt8(ascii: "o")]
        if isClear, truths.contains(where: { $0.utf8.starts(with: word) }) { return [UInt8(ascii: "t")] }
        if isClear, untruths.contains(where: { $0.utf8.starts(with: word) }) { return [UInt8(ascii: "f")] }
        throw .syntax("boolean", text)
    }

    /// Reads sixteen pairs of hexadecimal digits. A hyphen is allowed after every second pair, and braces around all.
    private static func uuid(_ text: String) throws(FilterRefusal) -> [UInt8] {
        var rest = Array(text.utf8)[...]
        let isBraced = rest.first == UInt8(ascii: "{")
        if isBraced { rest = rest.dropFirst() }
        var canonical: [UInt8] = []
        for pair in 0..<16 {
            if [4, 6, 8, 10].contains(pair) { canonical.append(UInt8(ascii: "-")) }
            for _ in 0..<2 {
                guard let digit = rest.popFirst().flatMap(lowerHexDigit) else { throw .syntax("uuid", text) }
                canonical.append(digit)
            }
            if rest.first == UInt8(ascii: "-"), pair % 2 == 1, pair < 15 { rest = rest.dropFirst() }
        }
        if isBraced, rest.popFirst() != UInt8(ascii: "}") { throw .syntax("uuid", text) }
        guard rest.isEmpty else { throw .syntax("uuid", text) }
        precondition(canonical.count == 36, "a uuid has one form, by which it is found")
        return canonical
    }

    private static func lowerHexDigit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case 48...57, 97...102: byte
        case 65...70: byte + 32
        default: nil
        }
    }

    // MARK: Numeric

    /// Reads digits with at most one decimal point. PostgreSQL is asked about exponents, NaN and malformed texts.
    private static func numeric(_ text: String) -> CanonicalText {
        var rest = trimmed(text)
        let isNegative = rest.first == UInt8(ascii: "-")
        if isNegative || rest.first == UInt8(ascii: "+") { rest = rest.dropFirst() }
        let point = rest.firstIndex(of: UInt8(ascii: ".")) ?? rest.endIndex
        let whole = rest[..<point].drop { $0 == 48 }
        var fraction = rest[point...].dropFirst()
        guard rest.count <= 100, rest.contains(where: { (48...57).contains($0) }) else { return .ask }
        guard (whole + fraction).allSatisfy({ (48...57).contains($0) }) else { return .ask }
        while fraction.last == 48 { fraction = fraction.dropLast() }
        var canonical = whole.isEmpty ? [48] : Array(whole)
        if !fraction.isEmpty { canonical += [UInt8(ascii: ".")] + fraction }
        if isNegative, canonical != [48] { canonical.insert(UInt8(ascii: "-"), at: 0) }
        return .ready(canonical)
    }
}

/// Lists that clients write in the syntax of PostgreSQL's array literals.
enum ArrayLiteral {
    /// Returns the elements of a simple list; nil stands for NULL. Returns nil if the list is nested, has escapes
    /// outside quotes, or is malformed. PostgreSQL must then read it.
    static func plainElements(_ bytes: [UInt8]) -> [[UInt8]?]? {
        guard bytes.count >= 2, bytes.first == UInt8(ascii: "{"), bytes.last == UInt8(ascii: "}") else { return nil }
        var reader = ListReader(rest: bytes.dropFirst().dropLast())
        reader.skipSpace()
        if reader.rest.isEmpty { return [] }
        var elements: [[UInt8]?] = []
        while true {
            guard let element = reader.element() else { return nil }
            elements.append(element)
            if reader.rest.isEmpty { return elements }
            guard reader.rest.removeFirst() == UInt8(ascii: ",") else { return nil }
        }
    }

    /// Returns the list in the syntax of PostgreSQL's array literals.
    static func text(_ elements: [[UInt8]?]) -> String {
        let texts = elements.map { element in
            guard let element else { return "NULL" }
            var quoted: [UInt8] = [UInt8(ascii: "\"")]
            for byte in element {
                if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { quoted.append(UInt8(ascii: "\\")) }
                quoted.append(byte)
            }
            return String(decoding: quoted + [UInt8(ascii: "\"")], as: UTF8.self)
        }
        return "{" + texts.joined(separator: ",") + "}"
    }

    private struct ListReader {
        var rest: ArraySlice<UInt8>

        mutating func skipSpace() {
            rest = rest.drop { $0 == 0x20 || (0x09...0x0d).contains($0) }
        }

        /// Reads the next element; its value is nil for NULL. Returns nil if the element is not simple. The reader is
        /// then at a comma or at the end.
        mutating func element() -> [UInt8]?? {
            skipSpace()
            let element: [UInt8]?? = rest.first == UInt8(ascii: "\"") ? quoted() : bare()
            skipSpace()
            return element
        }

        private mutating func quoted() -> [UInt8]?? {
            rest.removeFirst()
            var bytes: [UInt8] = []
            while let byte = rest.popFirst() {
                if byte == UInt8(ascii: "\"") { return .some(bytes) }
                if byte != UInt8(ascii: "\\") {
                    bytes.append(byte)
                } else if let escaped = rest.popFirst() {
                    bytes.append(escaped)
                }
            }
            return nil
        }

        private mutating func bare() -> [UInt8]?? {
            var bytes = Array(rest.prefix { $0 != UInt8(ascii: ",") })
            rest = rest.dropFirst(bytes.count)
            while let last = bytes.last, last == 0x20 || (0x09...0x0d).contains(last) { bytes.removeLast() }
            guard !bytes.isEmpty, !bytes.contains(where: { "{}\"\\".utf8.contains($0) }) else { return nil }
            let isNull = String(decoding: bytes, as: UTF8.self).lowercased() == "null"
            return isNull ? .some(nil) : .some(bytes)
        }
    }
}
