import Policy

/// Compiler from policy texts to terms. Tests replace it.
public struct PolicyCompiling: Sendable {
    var names: @Sendable (_ text: String) -> PolicyNames?
    public var compile: @Sendable (PolicyCatalog, _ text: String, RelationFacts) -> CompiledPolicy

    public static let real = PolicyCompiling(
        names: { PolicyCompiler.names(in: $0) },
        compile: { catalog, text, table in PolicyCompiler(catalog).compile(text, on: table) })

    static let undecided = CompiledPolicy(term: .undecided, classification: .fallback, rendering: nil)
}
