import COpenSSL

extension PublicKey {
    /// Creates an RSA key from its modulus and exponent, both big-endian (RFC 7518 §6.3.1).
    public static func rsa(modulus: Span<UInt8>, exponent: Span<UInt8>) throws(PublicKeyError) -> PublicKey {
        let bits = significantBits(modulus)
        guard modulusBits.contains(bits) else { throw .modulusBits(bits) }
        guard (2...64).contains(significantBits(exponent)), exponent[exponent.count - 1] & 1 == 1 else {
            throw .exponent
        }
        // RFC 3279 §2.3.1.
        let algorithm = DER.sequence(
            DER.objectIdentifier([0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]), DER.null)
        return try made(.rsa, algorithm, DER.sequence(DER.integer(modulus), DER.integer(exponent)))
    }

    /// Creates an ECDSA key from the coordinates of its point, each as long as the curve requires (RFC 7518 §6.2.1.2).
    public static func elliptic(
        _ curve: EllipticCurve, x: Span<UInt8>, y: Span<UInt8>
    ) throws(PublicKeyError) -> PublicKey {
        let expected = curve.coordinateBytes
        guard x.count == expected else { throw .length(expected: expected, found: x.count) }
        guard y.count == expected else { throw .length(expected: expected, found: y.count) }
        // RFC 5480 §2.1.1; SEC 1 §2.3.3: an uncompressed point begins with 4.
        let algorithm = DER.sequence(
            DER.objectIdentifier([0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01]), curve.objectIdentifier)
        return try made(.elliptic(curve), algorithm, [4] + copied(x) + copied(y))
    }

    /// Creates an EdDSA key from its encoded point (RFC 8037 §2, RFC 8410 §4).
    public static func edwards(_ curve: EdwardsCurve, x: Span<UInt8>) throws(PublicKeyError) -> PublicKey {
        guard x.count == curve.keyBytes else { throw .length(expected: curve.keyBytes, found: x.count) }
        return try made(.edwards(curve), DER.sequence(curve.objectIdentifier), copied(x))
    }

    /// Creates a key from its parts, encoded as X.509's `SubjectPublicKeyInfo`. Throws if the numbers do not form a
    /// key.
    private static func made(_ kind: Kind, _ algorithm: [UInt8], _ key: [UInt8]) throws(PublicKeyError) -> PublicKey {
        let encoded = DER.sequence(algorithm, DER.bitString(key))
        defer { ERR_clear_error() }
        // SAFETY: OpenSSL reads the `count` bytes inside the closure and moves only its own copy of the pointer.
        let handle = unsafe encoded.withUnsafeBufferPointer { bytes in
            var next = bytes.baseAddress
            return unsafe d2i_PUBKEY(nil, &next, bytes.count)
        }
        guard let handle = unsafe handle else { throw .refused }
        // SAFETY: the object takes over the handle, which is used nowhere else.
        let made = unsafe PublicKey(kind, owning: handle)
        guard made.isSound else { throw .refused }
        return made
    }

    private static func copied(_ bytes: Span<UInt8>) -> [UInt8] { bytes.indices.map { bytes[$0] } }

    private static func significantBits(_ number: Span<UInt8>) -> Int {
        for index in number.indices where number[index] != 0 {
            return (number.count - index) * 8 - number[index].leadingZeroBitCount
        }
        return 0
    }
}
