/// Elements of ASN.1's distinguished encoding (X.690) that keys and signatures need.
enum DER {
    static func sequence(_ parts: [UInt8]...) -> [UInt8] { element(0x30, parts.flatMap { $0 }) }

    /// Encodes a non-negative number, given as big-endian bytes, in the shortest form. A zero byte precedes a first
    /// byte that would otherwise be read as a minus sign.
    static func integer(_ bytes: Span<UInt8>) -> [UInt8] {
        var first = 0
        while first < bytes.count, bytes[first] == 0 { first += 1 }
        var content: [UInt8] = first == bytes.count || bytes[first] & 0x80 != 0 ? [0] : []
        for index in first..<bytes.count { content.append(bytes[index]) }
        return element(0x02, content)
    }

    /// Encodes a bit string of whole bytes: no bit of the last byte is unused.
    static func bitString(_ bytes: [UInt8]) -> [UInt8] { element(0x03, [0] + bytes) }

    static func objectIdentifier(_ encoded: [UInt8]) -> [UInt8] { element(0x06, encoded) }

    static let null: [UInt8] = [0x05, 0]

    private static func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        [tag] + length(content.count) + content
    }

    private static func length(_ count: Int) -> [UInt8] {
        precondition(count < 1 << 16, "no key is that long")
        if count < 0x80 { return [UInt8(count)] }
        if count < 0x100 { return [0x81, UInt8(count)] }
        return [0x82, UInt8(count >> 8), UInt8(count & 0xff)]
    }
}
