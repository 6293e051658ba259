import Policy

/// Compiler that turns policy texts into terms. Tests replace it.
public struct PolicyCompiling: Sendable {
    /// Returns the names that a policy's text contains; nil if it cannot be parsed.
    var names: @Sendable (_ text: String) -> PolicyNames?
    /// Compiles a policy's text for a table.
    public var compile: @Sendable (PolicyCatalog, _ text: String, RelationFacts) -> CompiledPolicy

    public static let real = PolicyCompiling(
        names: { PolicyCompiler.names(in: $0) },
        compile: { catalog, text, table in PolicyCompiler(catalog).compile(text, on: table) })

    /// Policy that the hub does not decide itself, so that PostgreSQL decides it.
    static let undecided = CompiledPolicy(term: .undecided, classification: .fallback, rendering: nil)
}
