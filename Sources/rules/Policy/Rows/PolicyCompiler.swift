/// Compiler of policies. It parses a text into a tree, and checks the tree to get a typed term.
public struct PolicyCompiler: Sendable {
    let catalog: PolicyCatalog

    public init(_ catalog: PolicyCatalog) { self.catalog = catalog }

    /// Returns the names in a text, so that the caller can look them up for the catalog. Nil if the text is not
    /// understood. The text is the expression of a policy or the `FunctionFacts.canonicalBody` of a function.
    public static func names(in text: String) -> PolicyNames? {
        var names = PolicyNames()
        if let tree = PolicyParser.expression(text) {
            names.add(tree)
        } else if let body = PolicyParser.body(text) {
            names.add(body)
        } else {
            return nil
        }
        return names
    }

    /// Compiles the USING expression of a policy. The text is that of `pg_get_expr(polqual, polrelid)` with
    /// `search_path = pg_catalog`.
    public func compile(_ text: String, on table: RelationFacts) -> CompiledPolicy {
        guard let tree = PolicyParser.expression(text) else {
            return CompiledPolicy(term: .undecided, classification: .fallback, rendering: nil)
        }
        var checker = Checker(catalog)
        let scope = Checker.Scope(level: 0, alias: table.name.name, relation: table)
        let typed = checker.condition(tree, Checker.Environment(scopes: [scope]), isPositive: true)
        let term = (try? typed.sealed()) ?? .undecided
        return CompiledPolicy(
            term: term, classification: term.classification, rendering: Renderer.text(tree))
    }
}

public struct CompiledPolicy: Sendable, Hashable {
    /// Way in which a policy is decided, determined by its slowest part.
    public enum Classification: String, Sendable, Hashable, CaseIterable {
        /// The hub decides every row.
        case compiled
        /// The hub decides most rows, and asks PostgreSQL about unusual rows or claims, such as characters beyond
        /// ASCII.
        case mostly
        /// The hub decides every row, after PostgreSQL has evaluated the parts that depend only on claims.
        case claims
        /// The hub decides rows with the keys of memberships, which it keeps current.
        case membership
        /// PostgreSQL decides every row.
        case fallback
    }

    public var term: Term
    public var classification: Classification
    /// SQL of the parsed tree; nil if the text was not understood. The tree is correct if PostgreSQL, with `search_path
    /// = pg_catalog`, reads this SQL like the policy's own text. To check that, compare what PostgreSQL prints for
    /// both. Do not compare this SQL with the policy's text: PostgreSQL reads `(ARRAY[…])::text[]` as casts of the
    /// elements.
    public var rendering: String?

    public init(term: Term, classification: Classification, rendering: String?) {
        self.term = term
        self.classification = classification
        self.rendering = rendering
    }
}

extension Term {
    /// Slowest classification of the term and its parts.
    var classification: CompiledPolicy.Classification {
        var worst = CompiledPolicy.Classification.compiled
        visit { part in
            if part.ownClassification.rank > worst.rank { worst = part.ownClassification }
        }
        return worst
    }

    private var ownClassification: CompiledPolicy.Classification {
        switch self {
        case .undecided: .fallback
        case .member: .membership
        case .ofClaims(nil, _): .claims
        case .apply(let function, _), .isDistinct(let function, _, _), .nullIf(let function, _, _),
            .anyElement(let function, _, _), .allElements(let function, _, _):
            function.mayAsk ? .mostly : .compiled
        default: .compiled
        }
    }
}

extension CompiledPolicy.Classification {
    fileprivate var rank: Int { Self.allCases.firstIndex(of: self) ?? 0 }
}
