import Bytes

/// Claims of an operator's token whose signature was checked.
public struct OperatorClaims: Sendable, Equatable {
    /// Value of the token's claim for the operator's role.
    public enum Named: Sendable, Equatable {
        case missing
        case text(String)
        /// Value that is not a string, so that it names no role.
        case other
    }

    /// Database role of the token; nil if it has none.
    public let role: String?
    /// Claim `sub`; empty if the token has none.
    public let subject: String
    public let named: Named
    /// Expiry of the token in Unix seconds; nil if it has none.
    public let expiry: Int64?
}

extension TokenVerifier {
    /// Checks the token's signature and dates, and returns its claims about an operator.
    ///
    /// - Parameters:
    ///   - claim: name of the claim that names the operator's role for the hub.
    ///   - longest: maximum number of seconds for which the token may still be valid; nil if it need not end.
    public func operatorClaims(
        _ token: RawSpan, naming claim: String, endingWithin longest: Int64? = nil, at now: Int64
    ) throws(TokenError) -> OperatorClaims {
        try checkLength(token)
        let (json, reading) = try signedClaims(token, at: now)
        if let longest {
            guard let expiry = reading.expiry, expiry <= now + longest else { throw .claimsMissing }
        }
        let holder = reading.holder(json: json)
        return OperatorClaims(
            role: reading.roleText, subject: String(decoding: holder.subject, as: UTF8.self),
            named: try Self.named(claim, in: json), expiry: reading.expiry)
    }

    /// Returns the value of the claim with this name. If the JSON has the name twice, the last value counts.
    private static func named(_ claim: String, in json: [UInt8]) throws(TokenError) -> OperatorClaims.Named {
        var named = OperatorClaims.Named.missing
        do throws(ByteError) {
            // SAFETY: any byte is a valid UInt8, and the span lives for the reading.
            var scanner = unsafe JSONScanner(json.span.bytes, maximumDepth: JSONScanner.deepest)
            _ = try scanner.next()
            while try scanner.next() == .name {
                let isWanted = scanner.text == claim
                let value = try scanner.next()
                if isWanted { named = value == .string ? .text(scanner.text) : .other }
                try scanner.skip(value)
            }
        } catch {
            throw .malformed
        }
        return named
    }
}
