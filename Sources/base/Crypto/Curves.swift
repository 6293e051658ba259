/// The curves of ECDSA that JSON Web Algorithms name (RFC 7518 §6.2.1.1).
public enum EllipticCurve: Sendable, Equatable, CaseIterable {
    case p256, p384, p521

    /// Length of one coordinate in bytes, and of one half of a signature.
    public var coordinateBytes: Int {
        switch self {
        case .p256: 32
        case .p384: 48
        case .p521: 66
        }
    }

    /// Object identifier of the curve (RFC 5480 §2.1.1.1).
    var objectIdentifier: [UInt8] {
        switch self {
        case .p256: DER.objectIdentifier([0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07])
        case .p384: DER.objectIdentifier([0x2b, 0x81, 0x04, 0x00, 0x22])
        case .p521: DER.objectIdentifier([0x2b, 0x81, 0x04, 0x00, 0x23])
        }
    }
}

/// The curves of EdDSA (RFC 8032, RFC 8037 §2).
public enum EdwardsCurve: Sendable, Equatable, CaseIterable {
    case ed25519, ed448

    public var keyBytes: Int {
        switch self {
        case .ed25519: 32
        case .ed448: 57
        }
    }

    /// Object identifier of the curve (RFC 8410 §3).
    var objectIdentifier: [UInt8] {
        switch self {
        case .ed25519: DER.objectIdentifier([0x2b, 0x65, 0x70])
        case .ed448: DER.objectIdentifier([0x2b, 0x65, 0x71])
        }
    }
}
