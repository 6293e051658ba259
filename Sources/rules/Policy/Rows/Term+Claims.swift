extension Term {
    /// True if the term may read one of the named claims. A term that takes the claims as a whole may read each of them.
    public func readsClaims(amongst names: Set<String>) -> Bool {
        guard !names.isEmpty else { return false }
        switch self {
        case .undecided, .ofClaims(nil, _), .claims: return true
        case .member(let membership, let key):
            return membership.condition.readsClaims(amongst: names) || key?.readsClaims(amongst: names) ?? false
        case .apply(_, let parts):
            // One claim out of the claims: `claims ->> 'name'`, or the beginning of a path.
            if parts.count == 2, parts[0].isWholeClaims, case .constant(let name?, _) = parts[1] {
                return Self.firstName(of: name).map(names.contains) ?? true
            }
            return parts.contains { $0.readsClaims(amongst: names) }
        default: return parts.contains { $0.readsClaims(amongst: names) }
        }
    }

    /// True if the value of the term is the claims as a whole, in another type or with a substitute for missing claims.
    private var isWholeClaims: Bool {
        switch self {
        case .claims: true
        case .apply(_, let parts): parts.count == 1 && parts[0].isWholeClaims
        case .nullIf(_, let value, let other): value.isWholeClaims && other.isConstant
        case .coalesce(let parts):
            parts.contains { $0.isWholeClaims } && parts.allSatisfy { $0.isWholeClaims || $0.isConstant }
        case .ofClaims(let term?, _): term.isWholeClaims
        default: false
        }
    }

    private var isConstant: Bool { if case .constant = self { true } else { false } }

    /// Returns the claim that a name, or a path such as `{app_metadata,room}`, begins with; nil if that is not plain.
    private static func firstName(of path: [UInt8]) -> String? {
        let text = String(decoding: path, as: UTF8.self)
        guard text.hasPrefix("{") else { return text }
        let first = text.dropFirst().prefix { $0 != "," && $0 != "}" }
        return first.isEmpty || first.contains { "\"\\ {".contains($0) } ? nil : String(first)
    }
}
