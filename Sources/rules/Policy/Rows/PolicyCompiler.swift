/// Compiler of policies: text to tree to typed term.
public struct PolicyCompiler: Sendable {
    let catalog: PolicyCatalog

    public init(_ catalog: PolicyCatalog) { self.catalog = catalog }

    /// Returns the names that a text uses, for the caller that fills the catalog; nil if the text is not understood.
    /// The text is a policy's expression or a function's `FunctionFacts.canonicalBody`.
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

    /// Compiles one policy's USING, as `pg_get_expr(polqual, polrelid)` writes it with `search_path = pg_catalog`.
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
    /// Way in which a policy is decided. The worst part of the policy counts.
    public enum Classification: String, Sendable, Hashable, CaseIterable {
        /// Decided in process, for every row.
        case compiled
        /// Decided in process, but PostgreSQL is asked about unusual rows or claims (characters beyond ASCII).
        case mostly
        /// Decided in process, after PostgreSQL has evaluated the parts that depend on claims alone.
        case claims
        case membership
        /// Decided by PostgreSQL, for every row.
        case fallback
    }

    public var term: Term
    public var classification: Classification
    /// Tree written as SQL again. The tree is right if PostgreSQL, with `search_path = pg_catalog`, reads this SQL as
    /// it reads the policy's own text. Compare the deparsed forms of both, not the first text: `(ARRAY[…])::text[]` is
    /// read as casts of the elements. Nil if the text was not understood.
    public var rendering: String?

    public init(term: Term, classification: Classification, rendering: String?) {
        self.term = term
        self.classification = classification
        self.rendering = rendering
    }
}

extension Term {
    /// Worst classification among the term and its parts.
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
