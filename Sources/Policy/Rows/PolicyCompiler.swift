/// Policy text → tree → typed term.
public struct PolicyCompiler: Sendable {
    let catalog: PolicyCatalog

    public init(_ catalog: PolicyCatalog) { self.catalog = catalog }

    /// The names a text uses, for whoever fills the catalog; nil where it is not understood at all.
    public static func names(in text: String) -> PolicyNames? { nil }

    /// One policy's USING as `pg_get_expr(polqual, polrelid)` writes it with `search_path = pg_catalog`.
    public func compile(_ text: String, on table: RelationFacts) -> CompiledPolicy {
        CompiledPolicy(term: .undecided, classification: .fallback, rendering: nil)
    }
}

public struct PolicyNames: Sendable, Hashable {
    public var functions: Set<QualifiedName> = []
    public var operators: Set<QualifiedName> = []
    public var relations: Set<QualifiedName> = []
    /// As they are written in casts.
    public var types: Set<String> = []

    public init() {}
}

public struct CompiledPolicy: Sendable, Hashable {
    /// How a policy is decided, worst part counting.
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
    /// The tree as SQL again: where PostgreSQL reads it as it read the policy, the tree is what the policy says. Nil where
    /// the text was not understood.
    public var rendering: String?

    public init(term: Term, classification: Classification, rendering: String?) {
        self.term = term
        self.classification = classification
        self.rendering = rendering
    }
}
