import Policy

/// What makes terms of texts. Tests put something of their own in its place.
struct PolicyCompiling: Sendable {
    var names: @Sendable (_ text: String) -> PolicyNames?
    var compile: @Sendable (PolicyCatalog, _ text: String, RelationFacts) -> CompiledPolicy

    static let real = PolicyCompiling(
        names: { PolicyCompiler.names(in: $0) },
        compile: { catalog, text, table in PolicyCompiler(catalog).compile(text, on: table) })

    static let undecided = CompiledPolicy(term: .undecided, classification: .fallback, rendering: nil)
}
