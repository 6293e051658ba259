import Bytes

extension RowPolicy {
    /// Returns the part of the policy that is left for one holder (role and claims) after its claims have been
    /// inserted. If PostgreSQL must evaluate terms first, returns these terms instead.
    ///
    /// - Parameter answers: PostgreSQL's earlier answers to `AskedTerm`s.
    public func residual(
        claims: [UInt8], role: [UInt8], answers: [AskedTerm: AskedAnswer]
    ) -> ResidualOutcome {
        var binding = Binding(claims: claims, role: role, answers: answers)
        let term = binding.bind(term)
        if !binding.needs.isEmpty { return .needs(binding.needs) }
        precondition(!term.speaksOfClaims, "claims of one holder in what others may share")
        precondition(
            binding.memberships.allSatisfy { !$0.membership.condition.speaksOfClaims },
            "a membership's rows that depend on who asks")
        return .residual(Residual(term: term, memberships: binding.memberships, mayAsk: term.mayAsk))
    }
}

extension Residual {
    /// Returns the predicate of the residual. `keys` has the present keys of each membership, in the order of
    /// `memberships`. `asker` is the number of the holder, for questions to PostgreSQL. A predicate that may ask is
    /// not shared with other holders.
    public func predicate(
        keys: [MembershipKeys], asker: UInt32, settings: FilterCheck.Settings
    ) -> Predicate {
        precondition(keys.count == memberships.count, "keys of each membership")
        let node = TermLowering(memberships: memberships, keys: keys).node(term)
        return Predicate(node, asker: asker, settings: settings)
    }
}

/// Binding of a policy to one holder (a role with its claims). It inserts the claims and evaluates every part that
/// reads no row.
struct Binding {
    private let claims: [UInt8]
    private let role: [UInt8]
    private let answers: [AskedTerm: AskedAnswer]
    /// Terms that PostgreSQL must evaluate first, without duplicates.
    private(set) var needs: [AskedTerm] = []
    private(set) var memberships: [HeldMembership] = []
    /// Values of terms that depend only on claims.
    private var known: [AskedTerm: Term] = [:]

    /// Maximum work of one operation on values in a policy, as in `FilterCheck.Settings`.
    private static let maximumWork = 1 << 20
    /// Maximum number of keys by which rows of a membership are found. A condition has few keys, unless it has long
    /// lists.
    private static let maximumKeys = 1000

    init(claims: [UInt8], role: [UInt8], answers: [AskedTerm: AskedAnswer]) {
        self.claims = claims
        self.role = role
        self.answers = answers
    }

    mutating func bind(_ term: Term) -> Term {
        switch term {
        case .constant, .column, .undecided: term
        case .claims: .constant(claims, .text)
        case .role: .constant(role, TypeFacts(oid: TypeOID.name, name: "name"))
        case .all(let parts): group(parts, decides: false)
        case .any(let parts): group(parts, decides: true)
        case .ofClaims(let inner, let asked): ofClaims(inner, asked)
        case .member(let membership, let key): member(membership, key)
        case .choice(let branches, let otherwise): choice(branches, otherwise)
        case .coalesce(let parts): coalesce(parts)
        case .apply(let function, let parts): apply(function, parts)
        case .not(let part): evaluated(.not(bind(part)))
        case .isNull(let part): evaluated(.isNull(bind(part)))
        case .isTrue(let part): evaluated(.isTrue(bind(part)))
        case .isFalse(let part): evaluated(.isFalse(bind(part)))
        case .isDistinct(let function, let left, let right):
            evaluated(.isDistinct(function, bind(left), bind(right)))
        case .nullIf(let function, let left, let right): nullIf(function, bind(left), bind(right))
        case .anyElement(let function, let value, let array):
            evaluated(.anyElement(function, bind(value), array: bind(array)))
        case .allElements(let function, let value, let array):
            evaluated(.allElements(function, bind(value), array: bind(array)))
        case .array(let elements, let type): evaluated(.array(elements.map { bind($0) }, type))
        case .element(let array, let index): evaluated(.element(bind(array), index: bind(index)))
        }
    }

    // MARK: Evaluating

    /// Returns the value of the term if all of its parts are constants, otherwise the term itself.
    private func evaluated(_ term: Term) -> Term {
        guard term.parts.allSatisfy({ $0.isSettled }) else { return term }
        return Self.settled(term)
    }

    private static func settled(_ term: Term) -> Term {
        guard let type = term.type else { return term }
        let none = RowImage(bytes: RawSpan(), places: [ColumnPlace]().span)
        return switch TermEvaluation.value(term, none, maximumWork: maximumWork) {
        case .value(let text): .constant(text, type)
        case .null: .constant(nil, type)
        case .failed: Function.failure
        case .cannot: term
        }
    }

    private mutating func apply(_ function: Function, _ parts: [Term]) -> Term {
        guard !function.readsClock, function.operation != .failure else { return .apply(function, parts) }
        let bound = parts.map { bind($0) }
        if bound.contains(where: { $0.isFailure }) { return Function.failure }
        // Like PostgreSQL's planner, returns NULL if one argument is NULL, whatever the others are.
        if function.isStrict, bound.contains(where: { $0.isNullConstant }) { return .constant(nil, function.result) }
        return evaluated(.apply(function, bound))
    }

    /// Binds NULLIF. NULL equals nothing; PostgreSQL's planner does not evaluate the other side then.
    private func nullIf(_ function: Function, _ left: Term, _ right: Term) -> Term {
        left.isNullConstant || right.isNullConstant ? left : evaluated(.nullIf(function, left, right))
    }

    private mutating func group(_ parts: [Term], decides: Bool) -> Term {
        var rest: [Term] = []
        for part in parts {
            let bound = bind(part)
            switch bound.constantTruth {
            case decides: return Self.constant(decides)
            case !decides: break
            default: rest.append(bound)
            }
        }
        if rest.isEmpty { return Self.constant(!decides) }
        if rest.count == 1 { return rest[0] }
        let group = decides ? Term.any(rest) : .all(rest)
        return rest.allSatisfy { $0.isSettled } ? Self.settled(group) : group
    }

    private static func constant(_ truth: Bool) -> Term {
        .constant([UInt8(ascii: truth ? "t" : "f")], .boolean)
    }

    /// Binds CASE. Branches that cannot be reached are not bound, so that nothing in them can fail.
    private mutating func choice(_ branches: [Term.Branch], _ otherwise: Term) -> Term {
        var rest: [Term.Branch] = []
        for branch in branches {
            let condition = bind(branch.condition)
            if condition.isNullConstant || condition.constantTruth == false { continue }
            if condition.constantTruth == true { return choice(rest, bound: bind(branch.value)) }
            rest.append(Term.Branch(when: condition, then: bind(branch.value)))
        }
        return choice(rest, bound: bind(otherwise))
    }

    private func choice(_ branches: [Term.Branch], bound otherwise: Term) -> Term {
        branches.isEmpty ? otherwise : evaluated(.choice(branches, otherwise: otherwise))
    }

    private mutating func coalesce(_ parts: [Term]) -> Term {
        var rest: [Term] = []
        for part in parts {
            let bound = bind(part)
            if bound.isNullConstant { continue }
            rest.append(bound)
            if bound.isSettled { break }
        }
        guard let first = rest.first else { return .constant(nil, parts.first?.type ?? .text) }
        return rest.count == 1 || first.isSettled ? first : .coalesce(rest)
    }

    // MARK: Claims

    private mutating func ofClaims(_ inner: Term?, _ asked: AskedTerm) -> Term {
        if let known = known[asked] { return known }
        let value = value(inner, asked)
        known[asked] = value
        return value
    }

    private mutating func value(_ inner: Term?, _ asked: AskedTerm) -> Term {
        if let inner {
            // The term is evaluated as a whole, because fields of the claims are found in the text of the claims.
            let settled = Self.settled(filled(inner))
            if case .constant(let text, _) = settled { return .constant(text, asked.type) }
            if settled.isFailure { return settled }
        }
        switch answers[asked] {
        case .value(let text)?: return .constant(text, asked.type)
        case .failed?: return Function.failure
        case nil:
            precondition(!needs.contains(asked), "asked once for each holder")
            needs.append(asked)
            return .undecided
        }
    }

    /// Returns the term with the claims inserted, but not evaluated.
    private func filled(_ term: Term) -> Term {
        switch term {
        case .claims: return .constant(claims, .text)
        case .role: return .constant(role, TypeFacts(oid: TypeOID.name, name: "name"))
        case .ofClaims(let inner, let asked):
            switch answers[asked] {
            case .value(let text)?: return .constant(text, asked.type)
            case .failed?: return Function.failure
            case nil: return inner.map(filled) ?? .undecided
            }
        default: return term.mapParts(filled)
        }
    }

    // MARK: Memberships

    private mutating func member(_ membership: Membership, _ key: Term?) -> Term {
        var held = membership
        // The hub does not follow a membership whose rows depend on another membership.
        guard !membership.condition.holdsMembership else { return .undecided }
        held.condition = bind(membership.condition)
        if held.condition.isFailure { return Function.failure }
        if held.condition.isNullConstant || held.condition.constantTruth == false { return Self.constant(false) }
        let key = key.map { bind($0) }
        if let key, key.isFailure { return Function.failure }
        guard !held.condition.mayAsk, !held.condition.mayFail, !held.condition.readsClock else { return .undecided }
        note(held)
        return .member(held, key: key)
    }

    private mutating func note(_ membership: Membership) {
        precondition(!membership.condition.mayAsk, "a membership whose rows only PostgreSQL knows")
        guard !memberships.contains(where: { $0.membership == membership }) else { return }
        let node = TermLowering(memberships: [], keys: []).node(membership.condition)
        let settings = FilterCheck.Settings(
            maximumListElements: 0, maximumKeys: Self.maximumKeys, maximumWork: Self.maximumWork, text: .unknown)
        memberships.append(
            HeldMembership(membership: membership, rows: Predicate(node, asker: nil, settings: settings)))
    }
}

extension Term {
    /// True if the term is a constant or always fails.
    fileprivate var isSettled: Bool {
        if case .constant = self { return true }
        return isFailure
    }

    fileprivate var isNullConstant: Bool {
        if case .constant(nil, _) = self { return true }
        return false
    }

    fileprivate var constantTruth: Bool? {
        switch self {
        case .constant([UInt8(ascii: "t")], let type) where type.oid == TypeOID.bool: true
        case .constant([UInt8(ascii: "f")], let type) where type.oid == TypeOID.bool: false
        default: nil
        }
    }

    /// True if the value depends on the claims or role of the holder.
    fileprivate var speaksOfClaims: Bool {
        switch self {
        case .claims, .role, .ofClaims: true
        default: parts.contains { $0.speaksOfClaims }
        }
    }

    /// True if the value for an unchanged row can change with time.
    var readsClock: Bool {
        if case .apply(let function, _) = self, function.readsClock { return true }
        return parts.contains { $0.readsClock }
    }
}
