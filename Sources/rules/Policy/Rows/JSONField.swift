import Bytes

/// Search for the value at a place in JSON, as the operators `->` and `->>` do.
///
/// The input is `json` as it was written, or `jsonb` as PostgreSQL writes it. The result is a part of the input.
enum JSONField {
    static func value(
        _ json: RawSpan, at key: [UInt8], _ address: Function.FieldAddress, asText: Bool, isBinary: Bool
    ) -> Outcome {
        // For `json`, PostgreSQL first reads all escapes, and raises an error for some of them.
        if !isBinary, hasEscapes(json), !isPlain(json.copied()) { return .cannot }
        switch piece(json, at: key, address) {
        case .found(let range): return asText ? text(json.extracting(range)) : .value(json.extracting(range).copied())
        case .missing: return .null
        case .unclear: return .cannot
        }
    }

    private static func hasEscapes(_ json: RawSpan) -> Bool {
        for index in 0..<json.byteCount where json.byte(index) == UInt8(ascii: "\\") { return true }
        return false
    }

    enum Piece {
        case found(Range<Int>)
        case missing
        case unclear
    }

    static func piece(_ json: RawSpan, at key: [UInt8], _ address: Function.FieldAddress) -> Piece {
        switch address {
        case .name:
            do throws(ByteError) { return try member(json, key) } catch { return .unclear }
        case .index:
            // SAFETY: any byte is a valid UInt8, and the span lives for the call.
            guard let index = IntegerText.value(unsafe key.span.bytes) else { return .unclear }
            do throws(ByteError) { return try element(json, index) } catch { return .unclear }
        case .path: return path(json, key)
        }
    }

    /// Returns the place of the value of the last member with this name.
    private static func member(_ json: RawSpan, _ name: [UInt8]) throws(ByteError) -> Piece {
        var scanner = JSONScanner(json, maximumDepth: JSONScanner.deepest)
        guard try scanner.next() == .beginObject else { return .missing }
        // SAFETY: any byte is a valid UInt8, and the span lives as long as the bytes.
        let wanted = unsafe name.span.bytes
        var piece = Piece.missing
        while try scanner.next() == .name {
            let isWanted =
                scanner.hasEscapes ? scanner.text.utf8.elementsEqual(name) : scanner.tokenBytes.equals(wanted)
            let token = try scanner.next()
            let start = start(of: token, scanner)
            try scanner.skip(token)
            assert(start >= 0 && start < scanner.offset, "a value of nothing")
            if isWanted { piece = .found(start..<scanner.offset) }
        }
        return piece
    }

    private static func element(_ json: RawSpan, _ index: Int64) throws(ByteError) -> Piece {
        var scanner = JSONScanner(json, maximumDepth: JSONScanner.deepest)
        switch try scanner.next() {
        case .beginArray: break
        case .beginObject: return .missing
        // PostgreSQL stores a scalar as an array with one element.
        default: return .unclear
        }
        var ranges: [Range<Int>] = []
        while true {
            let token = try scanner.next()
            if token == .endArray { break }
            let start = start(of: token, scanner)
            try scanner.skip(token)
            assert((ranges.last?.upperBound ?? 0) < start, "elements that overlap")
            ranges.append(start..<scanner.offset)
        }
        let place = index < 0 ? index + Int64(ranges.count) : index
        return place >= 0 && place < Int64(ranges.count) ? .found(ranges[Int(place)]) : .missing
    }

    /// Returns the offset at which the scanner's current token begins.
    private static func start(of token: JSONToken, _ scanner: borrowing JSONScanner) -> Int {
        switch token {
        case .beginObject, .beginArray: scanner.offset - 1
        case .string: scanner.offset - scanner.tokenBytes.byteCount - 2
        case .number: scanner.offset - scanner.tokenBytes.byteCount
        case .bool(true), .null: scanner.offset - 4
        case .bool(false): scanner.offset - 5
        case .name, .endObject, .endArray, .end: scanner.offset
        }
    }

    private static func path(_ json: RawSpan, _ path: [UInt8]) -> Piece {
        guard let names = ArrayText.elements(path), !names.isEmpty else { return .unclear }
        var range = 0..<json.byteCount
        for name in names {
            guard let name else { return .missing }
            switch step(json.extracting(range), name) {
            case .found(let inner):
                assert(inner.upperBound <= range.count, "a piece that reaches out of its whole")
                range = range.lowerBound + inner.lowerBound..<range.lowerBound + inner.upperBound
            case .missing: return .missing
            case .unclear: return .unclear
            }
        }
        return .found(range)
    }

    private static func step(_ json: RawSpan, _ name: [UInt8]) -> Piece {
        guard let first = firstByte(json) else { return .unclear }
        guard first == UInt8(ascii: "[") else { return piece(json, at: name, .name) }
        let isNumber = name.first.map { $0 == UInt8(ascii: "-") || (48...57).contains($0) } ?? false
        if isNumber, name.count < 10, name.dropFirst().allSatisfy({ (48...57).contains($0) }) {
            return piece(json, at: name, .index)
        }
        // PostgreSQL also accepts other forms of a number.
        return name.contains { (48...57).contains($0) } ? .unclear : .missing
    }

    static func firstByte(_ json: RawSpan) -> UInt8? {
        for index in 0..<json.byteCount where ![0x20, 0x09, 0x0a, 0x0d].contains(json.byte(index)) {
            return json.byte(index)
        }
        return nil
    }

    /// Returns the text that `->>` returns: a string without quotes and escapes, NULL for null, other JSON unchanged.
    static func text(_ json: RawSpan) -> Outcome {
        var scanner = JSONScanner(json, maximumDepth: JSONScanner.deepest)
        do throws(ByteError) {
            switch try scanner.next() {
            case .null: return .null
            case .string:
                let text = Array(scanner.text.utf8)
                return text.contains(0) ? .cannot : .value(text)
            default: return .value(json.copied())
            }
        } catch {
            return .cannot
        }
    }

    // MARK: Names

    static func hasName(_ json: RawSpan, _ names: [UInt8], _ quantity: Function.Quantity) -> Outcome {
        guard let present = topNames(json) else { return .cannot }
        guard quantity != .one else { return Outcome(present.contains(names)) }
        guard let wanted = ArrayText.elements(names) else { return .cannot }
        let found = wanted.lazy.compactMap { $0 }.map { present.contains($0) }
        return Outcome(quantity == .any ? found.contains(true) : !found.contains(false))
    }

    /// Returns the names of an object, the strings in an array, or a single string. Nil if the JSON is malformed.
    private static func topNames(_ json: RawSpan) -> Set<[UInt8]>? {
        var scanner = JSONScanner(json, maximumDepth: JSONScanner.deepest)
        var names: Set<[UInt8]> = []
        do throws(ByteError) {
            let first = try scanner.next()
            if first == .string { return [Array(scanner.text.utf8)] }
            guard first == .beginObject || first == .beginArray else { return [] }
            while true {
                let token = try scanner.next()
                if token == .endObject || token == .endArray { return names }
                if token == .name || first == .beginArray && token == .string { names.insert(Array(scanner.text.utf8)) }
                try scanner.skip(token == .name ? try scanner.next() : token)
            }
        } catch {
            return nil
        }
    }

    // MARK: Texts as JSON

    /// Converts a text to `json`, which keeps its form, or to `jsonb`.
    static func parse(_ text: [UInt8], isBinary: Bool) -> Outcome {
        guard isPlain(text) else { return .cannot }
        guard isBinary else { return .value(text) }
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        return JSONBWriter.text(unsafe text.span.bytes).map { .value($0) } ?? .cannot
    }

    /// True if every JSON parser reads the text in the same way. Its numbers are short and have no exponent, and no
    /// string contains a zero character, which PostgreSQL's texts cannot have.
    static func isPlain(_ text: [UInt8]) -> Bool {
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        var scanner = JSONScanner(unsafe text.span.bytes, maximumDepth: JSONScanner.deepest)
        do throws(ByteError) {
            while true {
                let token = try scanner.next()
                if token == .end { return true }
                if token == .number, !isPlainNumber(scanner.tokenBytes) { return false }
                if token == .string || token == .name, scanner.hasEscapes, scanner.text.utf8.contains(0) {
                    return false
                }
            }
        } catch {
            return false
        }
    }

    private static func isPlainNumber(_ number: RawSpan) -> Bool {
        guard number.byteCount < 100 else { return false }
        for index in 0..<number.byteCount where [UInt8(ascii: "e"), UInt8(ascii: "E")].contains(number.byte(index)) {
            return false
        }
        return true
    }
}

/// Writer of JSON in the form in which PostgreSQL writes `jsonb`: each name once with its last value, shorter names
/// first.
struct JSONBWriter {
    private indirect enum Value {
        case plain([UInt8])
        case string([UInt8])
        case array([Value])
        case object([(name: [UInt8], value: Value)])
    }

    private var output: [UInt8] = []

    /// Returns the text that PostgreSQL writes for `json` as `jsonb`; nil if it is malformed. `json` must satisfy
    /// `isPlain`.
    static func text(_ json: RawSpan) -> [UInt8]? {
        var scanner = JSONScanner(json, maximumDepth: JSONScanner.deepest)
        do throws(ByteError) {
            let value = try value(try scanner.next(), &scanner)
            var writer = JSONBWriter()
            writer.write(value)
            return writer.output
        } catch {
            return nil
        }
    }

    @_lifetime(scanner: copy scanner)
    private static func value(_ token: JSONToken, _ scanner: inout JSONScanner) throws(ByteError) -> Value {
        switch token {
        case .beginObject: return try object(&scanner)
        case .beginArray:
            var values: [Value] = []
            while true {
                let token = try scanner.next()
                if token == .endArray { return .array(values) }
                values.append(try value(token, &scanner))
            }
        case .string: return .string(Array(scanner.text.utf8))
        case .number: return .plain(number(scanner.tokenBytes))
        case .bool(let truth): return .plain(Array((truth ? "true" : "false").utf8))
        case .null, .name, .endObject, .endArray, .end: return .plain(Array("null".utf8))
        }
    }

    @_lifetime(scanner: copy scanner)
    private static func object(_ scanner: inout JSONScanner) throws(ByteError) -> Value {
        var members: [[UInt8]: Value] = [:]
        while try scanner.next() == .name {
            let name = Array(scanner.text.utf8)
            members[name] = try value(try scanner.next(), &scanner)
        }
        let sorted = members.sorted { left, right in
            left.key.count != right.key.count
                ? left.key.count < right.key.count : left.key.lexicographicallyPrecedes(right.key)
        }
        assert(sorted.count == members.count, "a member was lost")
        return .object(sorted.map { ($0.key, $0.value) })
    }

    /// Returns a number in the form of `jsonb`, in which zero has no sign.
    private static func number(_ text: RawSpan) -> [UInt8] {
        let bytes = text.copied()
        assert(!bytes.contains { "eE".utf8.contains($0) }, "an exponent is written otherwise")
        let isZero = bytes.allSatisfy { "-0.".utf8.contains($0) }
        return isZero && bytes.first == UInt8(ascii: "-") ? Array(bytes.dropFirst()) : bytes
    }

    private mutating func write(_ value: Value) {
        switch value {
        case .plain(let bytes): output += bytes
        case .string(let bytes): write(string: bytes)
        case .array(let values):
            output.append(UInt8(ascii: "["))
            for (index, value) in values.enumerated() {
                if index > 0 { output += ", ".utf8 }
                write(value)
            }
            output.append(UInt8(ascii: "]"))
        case .object(let members):
            output.append(UInt8(ascii: "{"))
            for (index, member) in members.enumerated() {
                if index > 0 { output += ", ".utf8 }
                write(string: member.name)
                output += ": ".utf8
                write(member.value)
            }
            output.append(UInt8(ascii: "}"))
        }
    }

    /// Writes a string like PostgreSQL's `escape_json`.
    private mutating func write(string bytes: [UInt8]) {
        output.append(UInt8(ascii: "\""))
        for byte in bytes {
            switch byte {
            case 0x08: output += "\\b".utf8
            case 0x0c: output += "\\f".utf8
            case 0x0a: output += "\\n".utf8
            case 0x0d: output += "\\r".utf8
            case 0x09: output += "\\t".utf8
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): output += [UInt8(ascii: "\\"), byte]
            case 0..<0x20:
                let digits = String(byte, radix: 16)
                output += (digits.utf8.count == 1 ? "\\u000" : "\\u00").utf8
                output += digits.utf8
            default: output.append(byte)
            }
        }
        output.append(UInt8(ascii: "\""))
    }
}
