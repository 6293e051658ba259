import Bytes

/// Check of the claims in a token whose signature is valid.
struct ClaimReading {
    private let expectations: ClaimExpectations
    /// Current time in Unix seconds.
    private let now: Int64
    private var role: [UInt8]?
    private var subject: [UInt8] = []
    /// Expiry of the token in Unix seconds; nil if there is none or it is not a number.
    private(set) var expiry: Int64?
    /// Faults of the claims, with the claims' names. If a claim occurs twice, its last value counts, as in PostgreSQL.
    private var faults: [(name: String, fault: TokenError)] = []

    init(_ expectations: ClaimExpectations, now: Int64) {
        self.expectations = expectations
        self.now = now
    }

    /// True if the bytes are a JSON object.
    static func isObject(_ claims: RawSpan) -> Bool {
        do throws(ByteError) {
            var scanner = JSONScanner(claims, maximumDepth: JSONScanner.deepest)
            let first = try scanner.next()
            guard first == .beginObject else { return false }
            try scanner.skip(first)
            return try scanner.next() == .end
        } catch {
            return false
        }
    }

    /// Reads and checks all claims. Throws the first fault, in the order of the claims' names.
    mutating func read(_ claims: RawSpan) throws(TokenError) {
        do throws(ByteError) {
            var scanner = JSONScanner(claims, maximumDepth: JSONScanner.deepest)
            guard try scanner.next() == .beginObject else { throw ByteError(expected: "an object", offset: 0) }
            while try scanner.next() == .name {
                let name = scanner.text
                let value = try scanner.next()
                take(name, JSONScalar(value, in: scanner))
                try scanner.skip(value)
            }
            _ = try scanner.next()
        } catch {
            throw .malformed
        }
        // Supabase Realtime checks claims in the order of their names and stops at the first fault.
        let first = faults.min { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
        if let first { throw first.fault }
    }

    /// Checks and stores one claim. `value` is nil if the claim is an array or an object.
    private mutating func take(_ name: String, _ value: JSONScalar?) {
        faults.removeAll { $0.name == name }
        switch name {
        case "exp": takeExpiry(value)
        case "nbf":
            takeStart(value)
            compare(name, value)
        case "iat": if value?.roundedSeconds == nil { faults.append((name, .claimRefused)) }
        default: compare(name, value)
        }
        switch name {
        case "role": role = text(value)
        case "sub": takeSubject(value)
        default: break
        }
    }

    private mutating func takeExpiry(_ value: JSONScalar?) {
        expiry = value?.roundedSeconds
        guard let expiry else { return faults.append(("exp", .claimRefused)) }
        if expiry <= now { faults.append(("exp", .expired(secondsAgo: now.subtractingClamped(expiry)))) }
    }

    /// Checks `nbf`, the time before which the token must not be accepted (RFC 7519 §4.1.5). Like `exp`, it has no
    /// tolerance.
    private mutating func takeStart(_ value: JSONScalar?) {
        guard let start = value?.roundedSeconds else { return faults.append(("nbf", .claimRefused)) }
        if start > now { faults.append(("nbf", .early(seconds: start.subtractingClamped(now)))) }
    }

    private mutating func compare(_ name: String, _ value: JSONScalar?) {
        guard let expected = expectations.expected.first(where: { $0.name == name }) else { return }
        if value != expected.value { faults.append((name, .claimRefused)) }
    }

    /// Stores the subject. A zero character is refused, because C code would truncate the text there, to what could be
    /// another user's id.
    private mutating func takeSubject(_ value: JSONScalar?) {
        subject = text(value) ?? []
        if subject.contains(0) { faults.append(("sub", .claimRefused)) }
    }

    /// Role, subject and claims that the token states, also if they have faults.
    func holder(json: [UInt8]) -> TokenHolder { TokenHolder(json: json, role: role ?? [], subject: subject) }

    var roleText: String? { role.map { String(decoding: $0, as: UTF8.self) } }

    private func text(_ value: JSONScalar?) -> [UInt8]? {
        guard case .string(let text) = value else { return nil }
        return Array(text.utf8)
    }

    /// Returns the claims. Throws if the role or the expiry is missing.
    func claims(json: [UInt8], digest: TokenDigest) throws(TokenError) -> Claims {
        guard let role, let expiry, !role.isEmpty, !role.contains(0) else { throw .claimsMissing }
        return Claims(json: json, role: role, subject: subject, expiry: expiry, digest: digest)
    }
}

extension Int64 {
    fileprivate func subtractingClamped(_ other: Int64) -> Int64 {
        let (difference, overflow) = subtractingReportingOverflow(other)
        return overflow ? .max : difference
    }
}
