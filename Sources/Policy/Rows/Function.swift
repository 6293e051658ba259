/// What an operator, a function or a cast does to values, where the process can do it as PostgreSQL does.
public struct Function: Sendable, Hashable {
    /// The type of what it makes.
    public let result: TypeFacts

    /// A built-in operator. `collation` is that of the comparison, derived from the operands as PostgreSQL derives it.
    public static func infix(
        _ name: String, _ left: TypeFacts, _ right: TypeFacts, _ collation: Collation, foldsASCIIPlainly: Bool,
        timeZone: String? = nil
    ) -> Function? { nil }

    /// A function of `pg_catalog`, by its name and its declared arguments.
    public static func named(
        _ name: String, _ arguments: [TypeFacts], _ collation: Collation, foldsASCIIPlainly: Bool
    ) -> Function? { nil }

    /// `value::type`. A cast that changes nothing of the text (varchar to text) is a function as well.
    public static func cast(_ from: TypeFacts, to type: TypeFacts, timeZone: String?) -> Function? { nil }

    var readsClock: Bool { false }

    var mayAsk: Bool { false }
}
