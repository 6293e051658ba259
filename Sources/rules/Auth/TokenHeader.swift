import Bytes

/// What a token says about its signature (RFC 7515 §4.1).
struct TokenHeader {
    /// Nil for what is not taken, `none` among it.
    let algorithm: SigningAlgorithm?
    /// Nil when it is missing or no text.
    let keyID: String?
    /// Names extensions that whoever checks must understand; we know none.
    let isCritical: Bool

    /// Nil for what is not a JSON object.
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
