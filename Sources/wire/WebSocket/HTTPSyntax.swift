import Bytes

/// Character classes of HTTP/1.1 (RFC 9110 §5.6, RFC 9112).
enum HTTPSyntax {
    static let carriageReturn: UInt8 = 13
    static let lineFeed: UInt8 = 10
    static let space: UInt8 = 32
    static let tab: UInt8 = 9

    static func isDigit(_ byte: UInt8) -> Bool { byte >= 48 && byte <= 57 }

    static func isLetter(_ byte: UInt8) -> Bool { (byte | 32) >= 97 && (byte | 32) <= 122 }

    /// True for a `tchar`: a character allowed in methods, header names and similar tokens.
    static func isTokenCharacter(_ byte: UInt8) -> Bool {
        if isDigit(byte) || isLetter(byte) { return true }
        switch byte {
        case 33, 35...39, 42, 43, 45, 46, 94, 95, 96, 124, 126: return true  // ! # $ % & ' * + - . ^ _ ` | ~
        default: return false
        }
    }

    static func isToken(_ text: RawSpan) -> Bool {
        text.byteCount > 0 && all(of: text, are: isTokenCharacter)
    }

    /// True for a character allowed in a header's value. Control characters are not allowed, so the hub accepts no bare
    /// CR and no NUL.
    static func isValueCharacter(_ byte: UInt8) -> Bool { byte == tab || (byte >= 32 && byte != 127) }

    /// True for a character allowed in `uri-host [":" port]`. Characters of a path, a list or a name with a password
    /// (RFC 3986 §3.2) are not allowed. Nor is the percent sign, because with it one host could be written in several
    /// ways.
    static func isHostCharacter(_ byte: UInt8) -> Bool {
        if isDigit(byte) || isLetter(byte) { return true }
        switch byte {
        case 33, 36, 38...43, 45, 46, 58, 59, 61, 91, 93, 95, 126: return true  // ! $ & ' ( ) * + - . : ; = [ ] _ ~
        default: return false
        }
    }

    static func all(of text: RawSpan, are isAllowed: (UInt8) -> Bool) -> Bool {
        for offset in 0..<text.byteCount where !isAllowed(text.byte(offset)) { return false }
        return true
    }

    static func firstIndex(of wanted: UInt8, in text: RawSpan, from start: Int = 0) -> Int? {
        var offset = start
        while offset < text.byteCount {
            if text.byte(offset) == wanted { return offset }
            offset += 1
        }
        return nil
    }

    /// Returns the range of the text without blanks (`OWS` of RFC 9110 §5.6.3) at both ends.
    static func trimmed(_ text: RawSpan) -> Range<Int> {
        var start = 0
        var end = text.byteCount
        while start < end, isBlank(text.byte(start)) { start += 1 }
        while end > start, isBlank(text.byte(end - 1)) { end -= 1 }
        return start..<end
    }

    static func isBlank(_ byte: UInt8) -> Bool { byte == space || byte == tab }

    /// Returns the text with ASCII letters in lower case and all other bytes unchanged.
    static func lowercased(_ text: String) -> String {
        String(decoding: text.utf8.map { $0 >= 65 && $0 <= 90 ? $0 | 32 : $0 }, as: UTF8.self)
    }

    /// Returns the elements of a comma-separated list (`#rule`), without blanks and without empty elements.
    static func list(_ value: String) -> [String] {
        value.split(separator: ",").map { trimmed(String($0)) }.filter { !$0.isEmpty }
    }

    static func trimmed(_ text: String) -> String {
        var utf8 = Array(text.utf8)[...].drop(while: isBlank)
        while let last = utf8.last, isBlank(last) { utf8.removeLast() }
        return String(decoding: utf8, as: UTF8.self)
    }
}
