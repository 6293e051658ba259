/// Host and port of a request (RFC 3986 §3.2). They are taken from the request's target, otherwise from its Host
/// header. No other code of the hub parses a host.
public struct HTTPAuthority: Equatable, Sendable {
    /// Host and port as received, in one text.
    public let text: String
    /// First label of the host name, in lower case; nil if the host is an IP address.
    public let label: String?

    /// Parses the text; nil if it is not a host with or without a port.
    init?(_ text: String) {
        let bytes = Array(text.utf8)
        guard bytes.allSatisfy(HTTPSyntax.isHostCharacter), let host = Self.host(bytes), !host.isEmpty else {
            return nil
        }
        self.text = text
        label = Self.isAddress(host) ? nil : Self.firstLabel(host)
    }

    /// Returns the host from the text, with the brackets of an IPv6 address. Nil if the text after it is not a port.
    private static func host(_ bytes: [UInt8]) -> ArraySlice<UInt8>? {
        let end: Int
        if bytes.first == UInt8(ascii: "[") {
            guard let bracket = bytes.firstIndex(of: UInt8(ascii: "]")), isLiteral(bytes[1..<bracket]) else {
                return nil
            }
            end = bracket + 1
        } else {
            end = bytes.firstIndex(of: UInt8(ascii: ":")) ?? bytes.count
        }
        let host = bytes[..<end]
        let isPlain =
            host.first == UInt8(ascii: "[") || !host.contains { $0 == UInt8(ascii: "[") || $0 == UInt8(ascii: "]") }
        return isPlain && isPort(bytes[end...]) ? host : nil
    }

    /// True for `":" port` with `port = *DIGIT`, and for an empty text.
    private static func isPort(_ bytes: ArraySlice<UInt8>) -> Bool {
        guard let colon = bytes.first else { return true }
        let digits = bytes.dropFirst()
        guard colon == UInt8(ascii: ":"), digits.allSatisfy(HTTPSyntax.isDigit) else { return false }
        return digits.isEmpty || UInt16(String(decoding: digits, as: UTF8.self)) != nil
    }

    /// True if the text in brackets is an IPv6 address, or an address of a future version (`v1.…`).
    private static func isLiteral(_ bytes: ArraySlice<UInt8>) -> Bool {
        guard let first = bytes.first else { return false }
        if first | 32 == UInt8(ascii: "v") { return !bytes.contains(UInt8(ascii: "[")) }
        let isAddress = bytes.allSatisfy { byte in
            HTTPSyntax.isDigit(byte) || (97...102).contains(byte | 32) || byte == UInt8(ascii: ":")
                || byte == UInt8(ascii: ".")
        }
        return isAddress && bytes.contains(UInt8(ascii: ":"))
    }

    /// True if the host is in brackets, or its last label is a number. Browsers distinguish IPv4 addresses from names
    /// in the same way (URL Standard, "ends in a number checker").
    private static func isAddress(_ host: ArraySlice<UInt8>) -> Bool {
        if host.first == UInt8(ascii: "[") { return true }
        let last = host.split(separator: UInt8(ascii: ".")).last ?? []
        let isHex = last.count > 1 && last.first == UInt8(ascii: "0") && last.dropFirst().first.map { $0 | 32 } == 120
        return last.allSatisfy(HTTPSyntax.isDigit)
            || isHex && last.dropFirst(2).allSatisfy { HTTPSyntax.isDigit($0) || (97...102).contains($0 | 32) }
    }

    private static func firstLabel(_ host: ArraySlice<UInt8>) -> String? {
        let label = host.prefix { $0 != UInt8(ascii: ".") }
        return label.isEmpty ? nil : HTTPSyntax.lowercased(String(decoding: label, as: UTF8.self))
    }
}
