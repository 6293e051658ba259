/// Typed expression of a policy. Columns, operators and functions are resolved, and functions written in SQL are
/// replaced by their bodies. Values are the texts that PostgreSQL writes for them.
///
/// A term still depends on claims. `RowPolicy.residual` makes of it the rest for one holder.
public indirect enum Term: Sendable, Hashable {
    case constant([UInt8]?, TypeFacts)
    /// Column of the row, by slot.
    case column(Int, TypeFacts)
    /// Setting `request.jwt.claims`, a text.
    case claims
    /// Role that reads the row, a name.
    case role
    case apply(Function, [Term])
    case all([Term])
    case any([Term])
    case not(Term)
    case isNull(Term)
    /// IS TRUE, which is never NULL.
    case isTrue(Term)
    case isFalse(Term)
    case isDistinct(Function, Term, Term)
    /// `CASE WHEN condition THEN value … ELSE otherwise END`.
    case choice([Branch], otherwise: Term)
    case coalesce([Term])
    /// NULLIF: NULL if both are equal by the function.
    case nullIf(Function, Term, Term)
    /// `value operator ANY (array)`: the function's left side is the value, its right side an element.
    case anyElement(Function, Term, array: Term)
    case allElements(Function, Term, array: Term)
    case array([Term], TypeFacts)
    /// `array[index]`, counted from the array's own lower bound.
    case element(Term, index: Term)
    /// True if the key is among a membership's keys. Without a key: true if the membership has any row.
    case member(Membership, key: Term?)
    /// Term over claims and constants alone, so it has one value for each holder. The process evaluates the inner term
    /// if there is one and it can be evaluated. Otherwise PostgreSQL is asked once.
    case ofClaims(Term?, AskedTerm)
    /// Boolean that only PostgreSQL can decide, for each row and holder.
    case undecided

    public struct Branch: Sendable, Hashable {
        public var condition: Term
        public var value: Term

        public init(when condition: Term, then value: Term) {
            self.condition = condition
            self.value = value
        }
    }
}

/// SQL without a table, a clock or a row, which PostgreSQL evaluates once for each holder.
public struct AskedTerm: Sendable, Hashable {
    /// One expression with every name qualified. PostgreSQL evaluates it as the holder's role, with the holder's claims
    /// set.
    public var sql: String
    public var type: TypeFacts
    /// True if the SQL calls only functions that came with PostgreSQL, so it is safe in any connection.
    public var isBuiltIn: Bool

    public init(sql: String, type: TypeFacts, isBuiltIn: Bool) {
        self.sql = sql
        self.type = type
        self.isBuiltIn = isBuiltIn
    }
}

/// Rows of another table that make a holder a member: `SELECT m.x FROM m WHERE condition`.
public struct Membership: Sendable, Hashable {
    public enum Reader: Sendable, Hashable {
        /// Role that asks: its privileges and the table's policies count.
        case caller
        /// Owner of a SECURITY DEFINER function, by oid.
        case definer(UInt32)
    }

    public var table: UInt32
    /// Column whose values are the keys; nil if only the existence of a row counts.
    public var keySlot: Int?
    /// Condition over the table's own columns and claims. Policies of the table are not in it yet.
    public var condition: Term
    public var reader: Reader
    /// SQL for the key text of each row (one column; a constant if there is no key) of the holder whose claims are set.
    /// All names are qualified, and all called functions came with PostgreSQL.
    public var fillSQL: String

    public init(table: UInt32, keySlot: Int?, condition: Term, reader: Reader, fillSQL: String) {
        self.table = table
        self.keySlot = keySlot
        self.condition = condition
        self.reader = reader
        self.fillSQL = fillSQL
    }
}
