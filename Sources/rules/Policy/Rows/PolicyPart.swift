import Bytes

/// Part of a policy's expression. Parts explain why the whole expression has its result.
public struct PolicyPart: Sendable, Hashable {
    /// Depth of the part in the expression. The expression itself has depth 0.
    public var depth: Int
    /// Text of the part for people.
    public var text: String
    /// SQL of the part for PostgreSQL, which means the same in any session.
    public var sql: String
    public var isCondition: Bool
    /// Typed term of the part; undecided if only PostgreSQL knows the value.
    public var term: Term
    /// True if the value can change with time.
    public var readsClock: Bool { term.readsClock }

    public init(depth: Int, text: String, sql: String, isCondition: Bool, term: Term) {
        self.depth = depth
        self.text = text
        self.sql = sql
        self.isCondition = isCondition
        self.term = term
    }
}

extension PolicyCompiler {
    /// Returns the expression and its parts, each followed by its own parts; at most `limit` of them. Empty if the text
    /// is not understood.
    public func parts(of text: String, on table: RelationFacts, limit: Int) -> [PolicyPart] {
        guard let tree = PolicyParser.expression(text) else { return [] }
        var taker = PolicyPartTaker(catalog: catalog, table: table, limit: limit)
        taker.condition(tree, 0, isPositive: true)
        return taker.parts
    }
}

/// Walker that collects the parts of an expression: conditions down to single comparisons, then the sides of these.
private struct PolicyPartTaker {
    let catalog: PolicyCatalog
    let table: RelationFacts
    let limit: Int
    private(set) var parts: [PolicyPart] = []

    init(catalog: PolicyCatalog, table: RelationFacts, limit: Int) {
        self.catalog = catalog
        self.table = table
        self.limit = limit
    }

    private var environment: Checker.Environment {
        Checker.Environment(scopes: [Checker.Scope(level: 0, alias: table.name.name, relation: table)])
    }

    mutating func condition(_ tree: Syntax, _ depth: Int, isPositive: Bool = false) {
        guard parts.count < limit else { return }
        if case .boolean = tree, depth > 0 { return }
        var checker = Checker(catalog)
        let typed = checker.condition(tree, environment, isPositive: isPositive)
        add(tree, depth, isCondition: true, (try? typed.sealed()) ?? .undecided)
        switch tree {
        case .all(let inner), .any(let inner):
            for part in inner { condition(part, depth + 1, isPositive: isPositive) }
        case .not(let inner): condition(inner, depth + 1)
        case .test(let inner, _): isBoolean(inner) ? condition(inner, depth + 1) : value(inner, depth + 1)
        case .choice(_, let branches, let otherwise): choice(branches, otherwise, depth + 1)
        case .infix(_, let left, let right), .isDistinct(let left, let right), .quantified(_, let left, _, let right):
            value(left, depth + 1)
            value(right, depth + 1)
        case .among(let left, _): value(left, depth + 1)
        case .call(_, let arguments):
            for argument in arguments { value(argument, depth + 1) }
        default: break
        }
    }

    private mutating func choice(_ branches: [Syntax.Branch], _ otherwise: Syntax?, _ depth: Int) {
        for branch in branches {
            isBoolean(branch.condition) ? condition(branch.condition, depth) : value(branch.condition, depth)
            condition(branch.value, depth)
        }
        if let otherwise { condition(otherwise, depth) }
    }

    /// Adds the side of a comparison unless it is a constant.
    private mutating func value(_ tree: Syntax, _ depth: Int) {
        guard parts.count < limit, !tree.isPlain else { return }
        var checker = Checker(catalog)
        let term = (try? checker.expression(tree, environment)).flatMap { try? $0.sealed() } ?? .undecided
        add(tree, depth, isCondition: false, term)
    }

    private func isBoolean(_ tree: Syntax) -> Bool {
        var checker = Checker(catalog)
        return (try? checker.expression(tree, environment))?.type.oid == TypeOID.bool
    }

    private mutating func add(_ tree: Syntax, _ depth: Int, isCondition: Bool, _ term: Term) {
        parts.append(
            PolicyPart(
                depth: depth, text: Renderer.readable(Renderer.text(tree)), sql: Renderer.text(tree, .qualified),
                isCondition: isCondition, term: term))
    }
}

extension Syntax {
    fileprivate var isPlain: Bool {
        switch self {
        case .literal, .number, .boolean, .null, .arrayOf: true
        case .cast(let inner, _): inner.isPlain
        case .array(let parts): parts.allSatisfy { $0.isPlain }
        default: false
        }
    }
}

extension Renderer {
    /// Returns a text for people: without the outer parentheses, and without quotes that names do not need.
    static func readable(_ text: String) -> String {
        var rest = Array(text.unicodeScalars)[...]
        if isWrapped(rest) { rest = rest.dropFirst().dropLast() }
        var readable = String.UnicodeScalarView()
        while let first = rest.first {
            let length = first == "'" || first == "\"" ? quotedLength(rest) : 1
            let piece = rest.prefix(length)
            rest = rest.dropFirst(length)
            readable.append(contentsOf: first == "\"" && isPlainName(piece) ? piece.dropFirst().dropLast() : piece)
        }
        return String(readable)
    }

    private static func quotedLength(_ text: ArraySlice<Unicode.Scalar>) -> Int {
        guard let quote = text.first else { return 0 }
        let end = text.dropFirst().firstIndex(of: quote) ?? text.endIndex - 1
        return end - text.startIndex + 1
    }

    private static func isPlainName(_ quoted: ArraySlice<Unicode.Scalar>) -> Bool {
        let name = quoted.dropFirst().dropLast()
        guard let first = name.first, first == "_" || ("a"..."z").contains(first) else { return false }
        return name.allSatisfy { $0 == "_" || ("a"..."z").contains($0) || ("0"..."9").contains($0) }
    }

    /// True if the last character closes the parenthesis with which the text begins.
    private static func isWrapped(_ text: ArraySlice<Unicode.Scalar>) -> Bool {
        guard text.first == "(", text.last == ")" else { return false }
        var depth = 0
        var place = text.startIndex
        while place < text.endIndex {
            switch text[place] {
            case "(": depth += 1
            case ")": depth -= 1
            case "'", "\"": place += quotedLength(text[place...]) - 1
            default: break
            }
            if depth == 0 { return place == text.endIndex - 1 }
            place += 1
        }
        return false
    }
}

/// Value of a part for one row and one holder.
public enum PartValue: Sendable, Hashable {
    /// Text of the value as PostgreSQL writes it.
    case value([UInt8])
    case null
    /// PostgreSQL would raise an error.
    case failed
    /// Value that only PostgreSQL knows.
    case unknown
}

extension Residual {
    /// Evaluates a part for one holder in the same way as policies. `keys` has the present keys of each membership, in
    /// the order of `memberships`.
    public func value(
        on row: borrowing RowImage, keys: [MembershipKeys], settings: FilterCheck.Settings
    ) -> PartValue {
        guard term.isBoolean else {
            return PartValue(TermEvaluation.value(term, row, maximumWork: settings.maximumWork))
        }
        // A predicate that no row satisfies does not tell if the result is false, NULL or an error.
        if case .constant(let verdict) = TermLowering(memberships: memberships, keys: keys).node(term) {
            return PartValue(Outcome(verdict))
        }
        return PartValue(Outcome(predicate(keys: keys, asker: 0, settings: settings).truth(on: row)))
    }
}

extension PartValue {
    init(_ outcome: Outcome) {
        switch outcome {
        case .value(let text): self = .value(text)
        case .null: self = .null
        case .failed: self = .failed
        case .cannot: self = .unknown
        }
    }
}
