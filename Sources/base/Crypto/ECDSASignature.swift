/// Conversion of ECDSA signatures. Tokens contain the two numbers one after the other, each as long as the curve's
/// coordinates (RFC 7518 §3.4). OpenSSL expects `SEQUENCE { INTEGER r, INTEGER s }` (RFC 3279 §2.2.3).
enum ECDSASignature {
    /// Returns the signature in OpenSSL's form, or nil if its length does not fit the curve.
    static func encode(_ signature: Span<UInt8>, of curve: EllipticCurve) -> [UInt8]? {
        let half = curve.coordinateBytes
        guard signature.count == 2 * half else { return nil }
        return DER.sequence(
            DER.integer(signature.extracting(0..<half)), DER.integer(signature.extracting(half..<2 * half)))
    }
}
