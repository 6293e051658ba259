/// What a predicate says of a row: SQL's three values, and one for what only PostgreSQL can tell.
public enum Verdict: UInt8, Sendable {
    case no
    /// NULL: no match, and none when negated.
    case unknown
    case yes
    /// It cannot be decided in process and is asked of PostgreSQL; never a guess.
    case ask
    case failed
}
