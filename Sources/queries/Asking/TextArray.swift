/// Conversion of lists of texts to PostgreSQL's array syntax, for parameters. The lists may be long.
public enum TextArray {
    /// Returns an array literal such as `{"a",NULL}`.
    public static func literal(_ elements: some Sequence<String?>) -> String {
        var bytes: [UInt8] = [UInt8(ascii: "{")]
        for element in elements {
            if bytes.count > 1 { bytes.append(UInt8(ascii: ",")) }
            append(element, to: &bytes)
        }
        bytes.append(UInt8(ascii: "}"))
        return String(decoding: bytes, as: UTF8.self)
    }

    public static func literal(_ elements: ArraySlice<String>) -> String { literal(elements.lazy.map { Optional($0) }) }

    private static func append(_ element: String?, to bytes: inout [UInt8]) {
        guard let element else {
            bytes.append(contentsOf: "NULL".utf8)
            return
        }
        bytes.append(UInt8(ascii: "\""))
        for byte in element.utf8 {
            if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { bytes.append(UInt8(ascii: "\\")) }
            bytes.append(byte)
        }
        bytes.append(UInt8(ascii: "\""))
    }
}
