import Bytes
import Crypto

extension JWKSet {
    /// Reads a key set. Skips a key that is meant for another purpose, and adds a note. Throws for a key that should
    /// work but cannot, because the operator would otherwise learn of it from users.
    public static func parse(
        _ bytes: RawSpan, maximumBytes: Int, maximumKeys: Int
    ) throws(JWKSetError) -> JWKSet {
        guard bytes.byteCount <= maximumBytes else { throw .tooLong(maximumBytes: maximumBytes) }
        let entries = try read(bytes, maximumKeys: maximumKeys)
        var keys: [Key] = []
        var notes: [String] = []
        for (index, entry) in entries.enumerated() {
            switch try entry.understood(number: index + 1) {
            case .key(let key): keys.append(key)
            case .unused(let note): notes.append(note)
            }
        }
        return JWKSet(keys: keys, notes: notes)
    }

    private static func read(_ bytes: RawSpan, maximumKeys: Int) throws(JWKSetError) -> [JWKEntry] {
        var isFull = false
        do throws(ByteError) {
            var scanner = JSONScanner(bytes)
            guard try scanner.next() == .beginObject else { throw ByteError(expected: "an object", offset: 0) }
            var entries: [JWKEntry]?
            while try scanner.next() == .name {
                let isKeys = scanner.text == "keys"
                let value = try scanner.next()
                if isKeys {
                    entries = try readKeys(value, &scanner, maximumKeys, &isFull)
                } else {
                    try scanner.skip(value)
                }
            }
            _ = try scanner.next()
            guard let entries else { throw ByteError(expected: "a member \"keys\"", offset: scanner.offset) }
            return entries
        } catch {
            if isFull { throw .tooManyKeys(maximum: maximumKeys) }
            throw .shape(expected: "\(error.expected)", offset: error.offset)
        }
    }

    private static func readKeys(
        _ value: JSONToken, _ scanner: inout JSONScanner, _ maximumKeys: Int, _ isFull: inout Bool
    ) throws(ByteError) -> [JWKEntry] {
        guard value == .beginArray else { throw ByteError(expected: "an array of keys", offset: scanner.offset) }
        var entries: [JWKEntry] = []
        while true {
            let token = try scanner.next()
            if token == .endArray { return entries }
            guard token == .beginObject else { throw ByteError(expected: "a key", offset: scanner.offset) }
            isFull = entries.count == maximumKeys
            if isFull { throw ByteError(expected: "fewer keys", offset: scanner.offset) }
            entries.append(try JWKEntry(&scanner))
        }
    }
}

/// Key of a key set, as its text members by name.
private struct JWKEntry {
    enum Understood {
        case key(JWKSet.Key)
        case unused(String)
    }

    private var texts: [String: String] = [:]

    /// Reads a key. The scanner has just passed its opening brace. Members that are not texts are ignored.
    init(_ scanner: inout JSONScanner) throws(ByteError) {
        while try scanner.next() == .name {
            let name = scanner.text
            let value = try scanner.next()
            texts[name] = value == .string ? scanner.text : nil
            try scanner.skip(value)
        }
    }

    /// Returns the key, or the reason why the hub does not use it. Throws for a key that should work but cannot.
    /// `number` is the key's position in the set, from 1.
    func understood(number: Int) throws(JWKSetError) -> Understood {
        let which = texts["kid"].map { "key \(number) (kid \"\($0)\")" } ?? "key \(number)"
        guard let type = texts["kty"] else { throw .key(which, "it has no \"kty\"") }
        if texts["use"] == "enc" { return .unused("\(which) is not used: it is for encryption") }
        guard ["oct", "RSA", "EC", "OKP"].contains(type) else {
            return .unused("\(which) is not used: its type \(type) is not known")
        }
        guard let id = texts["kid"] else {
            return .unused("\(which) is not used: it has no \"kid\", by which tokens could name it")
        }
        guard let material = try material(type, which) else {
            return .unused("\(which) is not used: its curve \(texts["crv"] ?? "") is not one that signs tokens")
        }
        return .key(JWKSet.Key(id: id, material: material))
    }

    /// Returns the material of the key; nil if the hub does not know its curve.
    private func material(_ type: String, _ which: String) throws(JWKSetError) -> JWKSet.Material? {
        switch type {
        case "oct":
            let secret = try bytes("k", which)
            guard !secret.isEmpty else { throw .key(which, "its \"k\" is empty") }
            return .shared(secret)
        case "RSA":
            let (modulus, exponent) = (try bytes("n", which), try bytes("e", which))
            return .public(
                try checked(which) { () throws(PublicKeyError) in
                    try PublicKey.rsa(modulus: modulus.span, exponent: exponent.span)
                })
        case "EC": return try elliptic(which)
        default: return try edwards(which)
        }
    }

    private func elliptic(_ which: String) throws(JWKSetError) -> JWKSet.Material? {
        let curves: [String: EllipticCurve] = ["P-256": .p256, "P-384": .p384, "P-521": .p521]
        guard let curve = curves[try text("crv", which)] else { return nil }
        let (x, y) = (try bytes("x", which), try bytes("y", which))
        return .public(
            try checked(which) { () throws(PublicKeyError) in
                try PublicKey.elliptic(curve, x: x.span, y: y.span)
            })
    }

    private func edwards(_ which: String) throws(JWKSetError) -> JWKSet.Material? {
        let curves: [String: EdwardsCurve] = ["Ed25519": .ed25519, "Ed448": .ed448]
        guard let curve = curves[try text("crv", which)] else { return nil }
        let x = try bytes("x", which)
        return .public(
            try checked(which) { () throws(PublicKeyError) in try PublicKey.edwards(curve, x: x.span) })
    }

    private func text(_ name: String, _ which: String) throws(JWKSetError) -> String {
        guard let text = texts[name] else { throw .key(which, "it has no \"\(name)\"") }
        return text
    }

    private func bytes(_ name: String, _ which: String) throws(JWKSetError) -> [UInt8] {
        guard let bytes = Base64URL.decode(try text(name, which).utf8) else {
            throw .key(which, "its \"\(name)\" is not base64url without padding")
        }
        return bytes
    }

    private func checked(
        _ which: String, _ make: () throws(PublicKeyError) -> PublicKey
    ) throws(JWKSetError) -> PublicKey {
        do throws(PublicKeyError) {
            return try make()
        } catch {
            throw .key(which, error.description)
        }
    }
}
