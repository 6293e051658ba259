/// Typed expression of a policy. Columns, operators and functions are resolved, and functions written in SQL are
/// replaced by their bodies. Values are texts as PostgreSQL writes them.
///
/// A term may still depend on claims. `RowPolicy.residual` inserts the claims of one holder (a role with its claims).
public indirect enum Term: Sendable, Hashable {
    case constant([UInt8]?, TypeFacts)
    /// The row's column with this slot.
    case column(Int, TypeFacts)
    /// The setting `request.jwt.claims`, of type text.
    case claims
    /// The role that reads the row, of type name.
    case role
    case apply(Function, [Term])
    case all([Term])
    case any([Term])
    case not(Term)
    case isNull(Term)
    /// IS TRUE, whose result is never NULL.
    case isTrue(Term)
    case isFalse(Term)
    case isDistinct(Function, Term, Term)
    /// `CASE WHEN condition THEN value … ELSE otherwise END`.
    case choice([Branch], otherwise: Term)
    case coalesce([Term])
    /// NULLIF: NULL if the function finds both equal, otherwise the first.
    case nullIf(Function, Term, Term)
    /// `value operator ANY (array)`. The value is the function's left side, an element of the array its right side.
    case anyElement(Function, Term, array: Term)
    case allElements(Function, Term, array: Term)
    case array([Term], TypeFacts)
    /// `array[index]`. The index counts from the lower bound of the array.
    case element(Term, index: Term)
    /// True if the key is among the keys of a membership. If there is no key, true if the membership has any row.
    case member(Membership, key: Term?)
    /// A term that depends only on claims and constants, so that each holder has one value. The hub evaluates the inner
    /// term if it can. Otherwise it asks PostgreSQL once for each holder.
    case ofClaims(Term?, AskedTerm)
    /// A boolean that only PostgreSQL can decide, for each row and holder.
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

/// SQL expression that reads no table, clock or row. PostgreSQL evaluates it once for each holder.
public struct AskedTerm: Sendable, Hashable {
    /// Expression in which every name is qualified. PostgreSQL evaluates it as the holder's role, with the holder's
    /// claims.
    public var sql: String
    public var type: TypeFacts
    /// True if the SQL calls only functions that come with PostgreSQL, so that any login may run it.
    public var isBuiltIn: Bool

    public init(sql: String, type: TypeFacts, isBuiltIn: Bool) {
        self.sql = sql
        self.type = type
        self.isBuiltIn = isBuiltIn
    }
}

/// Rows of another table that give a holder rights: `SELECT m.x FROM m WHERE condition`.
public struct Membership: Sendable, Hashable {
    public enum Reader: Sendable, Hashable {
        /// The role of the query: its privileges and the table's policies apply.
        case caller
        /// The owner of a SECURITY DEFINER function, by oid.
        case definer(UInt32)
    }

    public var table: UInt32
    /// Column whose values are the keys; nil if it only matters that a row exists.
    public var keySlot: Int?
    /// Condition over the table's own columns and the claims. It does not include the table's policies yet.
    public var condition: Term
    public var reader: Reader
    /// SQL that returns the key of each row for the holder whose claims are set. It has one output column, a constant
    /// if there is no key. All names are qualified, and all called functions come with PostgreSQL.
    public var fillSQL: String

    public init(table: UInt32, keySlot: Int?, condition: Term, reader: Reader, fillSQL: String) {
        self.table = table
        self.keySlot = keySlot
        self.condition = condition
        self.reader = reader
        self.fillSQL = fillSQL
    }
}
