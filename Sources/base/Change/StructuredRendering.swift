import Bytes

/// Conversion of values of user-defined types to JSON: rows inside rows, and arrays of rows.
///
/// This type is separate from `JSONRendering` because it holds references, which most columns do not need.
public indirect enum ValueRendering: Sendable {
    case plain(JSONRendering)
    /// Object of the type's attributes, in their order, without dropped attributes.
    case composite([Attribute])
    case array(of: ValueRendering)

    public struct Attribute: Sendable {
        public var name: String
        public var rendering: ValueRendering

        public init(_ name: String, _ rendering: ValueRendering) {
            self.name = name
            self.rendering = rendering
        }
    }

    /// Appends the value as JSON. A text that PostgreSQL would not write becomes a JSON string.
    public func append(_ text: RawSpan, to writer: inout ByteWriter) {
        switch self {
        case .plain(let rendering): rendering.append(text, to: &writer)
        case .composite(let attributes): CompositeText.append(text, of: attributes, to: &writer)
        case .array(let element):
            ArrayText.append(text, to: &writer) { value, writer in element.appendNested(value, to: &writer) }
        }
    }

    /// Appends the value in the form that it has inside another value.
    func appendNested(_ text: RawSpan, to writer: inout ByteWriter) {
        if case .plain(.scalar(let scalar)) = self {
            scalar.nested.append(text, to: &writer)
        } else {
            append(text, to: &writer)
        }
    }
}

/// Row in PostgreSQL's text form, `(1,"a ""b""",,"(2,x)")`: an empty field is NULL, quotes and backslashes are doubled.
enum CompositeText {
    static func append(_ text: RawSpan, of attributes: [ValueRendering.Attribute], to writer: inout ByteWriter) {
        let before = writer.count
        if appendObject(text, attributes, to: &writer) { return }
        // Not a valid row of this type: append the text as a JSON string.
        writer.truncate(to: before)
        JSONText.appendString(text, to: &writer)
    }

    private static func appendObject(
        _ text: RawSpan, _ attributes: [ValueRendering.Attribute], to writer: inout ByteWriter
    ) -> Bool {
        guard text.byteCount >= 2, text.byte(0) == UInt8(ascii: "(") else { return false }
        writer.append("{")
        var at = 1
        for (index, attribute) in attributes.enumerated() {
            if index > 0 {
                guard at < text.byteCount, text.byte(at) == UInt8(ascii: ",") else { return false }
                at += 1
                writer.append(",")
            }
            JSONText.appendString(attribute.name, to: &writer)
            writer.append(":")
            guard let end = appendField(text, from: at, attribute.rendering, to: &writer) else { return false }
            at = end
        }
        writer.append("}")
        return at == text.byteCount - 1 && text.byte(at) == UInt8(ascii: ")")
    }

    /// Appends the field that begins at `start`. Returns the offset after the field; nil if the field has no end.
    private static func appendField(
        _ text: RawSpan, from start: Int, _ rendering: ValueRendering, to writer: inout ByteWriter
    ) -> Int? {
        var field = ByteWriter(capacity: 64)
        var isQuoted = false
        var at = start
        var isNull = true
        while at < text.byteCount {
            let byte = text.byte(at)
            if !isQuoted, byte == UInt8(ascii: ",") || byte == UInt8(ascii: ")") { break }
            isNull = false
            at += 1
            if byte == UInt8(ascii: "\"") {
                // Two quotes inside quotes mean one.
                if isQuoted, at < text.byteCount, text.byte(at) == byte {
                    field.append(byte)
                    at += 1
                } else {
                    isQuoted.toggle()
                }
            } else if byte == UInt8(ascii: "\\") {
                guard at < text.byteCount else { return nil }
                field.append(text.byte(at))
                at += 1
            } else {
                field.append(byte)
            }
        }
        guard at < text.byteCount, !isQuoted else { return nil }
        if isNull { writer.append("null") } else { rendering.appendNested(field.bytes, to: &writer) }
        return at
    }
}

/// Text of the extension hstore: `"a"=>"1", "b"=>NULL`.
enum HstoreText {
    /// Appends an hstore value as an object. Not inlined, because it is rare and must not slow down other values.
    @inline(never)
    static func append(_ text: RawSpan, to writer: inout ByteWriter) {
        let before = writer.count
        if appendObject(text, to: &writer) { return }
        writer.truncate(to: before)
        JSONText.appendString(text, to: &writer)
    }

    private static func appendObject(_ text: RawSpan, to writer: inout ByteWriter) -> Bool {
        writer.append("{")
        var at = 0
        while at < text.byteCount {
            if at > 0 {
                guard take(", ", of: text, at: &at) else { return false }
                writer.append(",")
            }
            guard appendQuoted(text, at: &at, to: &writer), take("=>", of: text, at: &at) else { return false }
            writer.append(":")
            if take("NULL", of: text, at: &at) {
                writer.append("null")
            } else if !appendQuoted(text, at: &at, to: &writer) {
                return false
            }
        }
        writer.append("}")
        return true
    }

    private static func take(_ expected: StaticString, of text: RawSpan, at offset: inout Int) -> Bool {
        let end = offset + expected.utf8CodeUnitCount
        guard end <= text.byteCount, text.extracting(offset..<end).equals(expected) else { return false }
        offset = end
        return true
    }

    private static func appendQuoted(_ text: RawSpan, at offset: inout Int, to writer: inout ByteWriter) -> Bool {
        guard take("\"", of: text, at: &offset) else { return false }
        var unquoted = ByteWriter(capacity: 64)
        while offset < text.byteCount {
            var byte = text.byte(offset)
            offset += 1
            if byte == UInt8(ascii: "\"") {
                JSONText.appendString(unquoted.bytes, to: &writer)
                return true
            }
            if byte == UInt8(ascii: "\\") {
                guard offset < text.byteCount else { return false }
                byte = text.byte(offset)
                offset += 1
            }
            unquoted.append(byte)
        }
        return false
    }
}
