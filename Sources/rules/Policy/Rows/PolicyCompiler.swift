/// Policy text → tree → typed term.
public struct PolicyCompiler: Sendable {
    let catalog: PolicyCatalog

    public init(_ catalog: PolicyCatalog) { self.catalog = catalog }

    /// The names a text uses, for whoever fills the catalog; nil where it is not understood at all. The text is a policy's
    /// expression or a function's `FunctionFacts.canonicalBody`.
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

    /// One policy's USING as `pg_get_expr(polqual, polrelid)` writes it with `search_path = pg_catalog`.
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
    /// The way in which a policy is decided, worst part counting.
    public enum Classification: String, Sendable, Hashable, CaseIterable {
        /// In process, whatever the row.
        case compiled
        /// In process, but for rows or claims that are out of the ordinary (characters beyond ASCII): those are asked.
        case mostly
        /// In process, after PostgreSQL has evaluated what depends on claims alone.
        case claims
        case membership
        /// PostgreSQL, for every row.
        case fallback
    }

    public var term: Term
    public var classification: Classification
    /// The tree as SQL again. Where PostgreSQL reads it as it reads the policy's own text, with `search_path = pg_catalog`,
    /// the tree is what the policy says: hold the deparsed forms of both against each other, not against the first text,
    /// for `(ARRAY[…])::text[]` is read as casts of the elements. Nil where the text was not understood.
    public var rendering: String?

    public init(term: Term, classification: Classification, rendering: String?) {
        self.term = term
        self.classification = classification
        self.rendering = rendering
    }
}

extension Term {
    /// The worst of its parts.
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
