import Bytes

/// Header of a token, which describes the token's signature (RFC 7515 §4.1).
struct TokenHeader {
    /// Algorithm of the signature; nil if the hub does not accept it, such as `none`.
    let algorithm: SigningAlgorithm?
    /// Id of the key; nil if it is missing or not a text.
    let keyID: String?
    /// True if the header names extensions that a verifier must understand (`crit`). The hub understands none.
    let isCritical: Bool

    /// Reads a header; nil if it is not a JSON object.
    init?(_ bytes: RawSpan) {
        var algorithm: SigningAlgorithm?
        var keyID: String?
        var isCritical = false
        do throws(ByteError) {
            var scanner = JSONScanner(bytes)
            guard try scanner.next() == .beginObject else { return nil }
            while try scanner.next() == .name {
                let name = scanner.text
                let value = try scanner.next()
                switch name {
                case "alg": algorithm = value == .string ? SigningAlgorithm(scanner.text) : nil
                case "kid": keyID = value == .string ? scanner.text : nil
                case "crit": isCritical = true
                default: break
                }
                try scanner.skip(value)
            }
            _ = try scanner.next()
        } catch {
            return nil
        }
        self.algorithm = algorithm
        self.keyID = keyID
        self.isCritical = isCritical
    }
}
