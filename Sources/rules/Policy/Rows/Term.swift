/// A policy's expression, typed: columns found, operators and functions resolved, functions written in SQL replaced by
/// what they say. Values are the texts PostgreSQL writes for them.
///
/// It still speaks of claims; `RowPolicy.residual` turns it into what is left of it for one holder.
public indirect enum Term: Sendable, Hashable {
    case constant([UInt8]?, TypeFacts)
    /// A column of the row, by slot.
    case column(Int, TypeFacts)
    /// The setting `request.jwt.claims`, a text.
    case claims
    /// The role the row is read as, a name.
    case role
    case apply(Function, [Term])
    case all([Term])
    case any([Term])
    case not(Term)
    case isNull(Term)
    /// Never NULL.
    case isTrue(Term)
    case isFalse(Term)
    case isDistinct(Function, Term, Term)
    /// `CASE WHEN condition THEN value … ELSE otherwise END`.
    case choice([Branch], otherwise: Term)
    case coalesce([Term])
    /// NULL where both are equal by the function.
    case nullIf(Function, Term, Term)
    /// `value operator ANY (array)`: the function's left side is the value, its right side an element.
    case anyElement(Function, Term, array: Term)
    case allElements(Function, Term, array: Term)
    case array([Term], TypeFacts)
    /// `array[index]`, from the array's own lower bound on.
    case element(Term, index: Term)
    /// Whether the key is among a membership's keys; without a key, whether the membership has any row.
    case member(Membership, key: Term?)
    /// Speaks of claims and constants alone, so it has one value for each holder. In process where there is a term and it
    /// can be evaluated; else PostgreSQL is asked once.
    case ofClaims(Term?, AskedTerm)
    /// Boolean; only PostgreSQL can tell, for each row and holder.
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

/// SQL that PostgreSQL evaluates once for each holder: it reads no table, no clock and no row.
public struct AskedTerm: Sendable, Hashable {
    /// One expression, every name qualified, to be asked as the holder's role with the holder's claims set.
    public var sql: String
    public var type: TypeFacts
    /// It calls nothing that did not come with PostgreSQL, so it is safe in any connection.
    public var isBuiltIn: Bool

    public init(sql: String, type: TypeFacts, isBuiltIn: Bool) {
        self.sql = sql
        self.type = type
        self.isBuiltIn = isBuiltIn
    }
}

/// The rows of another table that make somebody a member: `SELECT m.x FROM m WHERE condition`.
public struct Membership: Sendable, Hashable {
    public enum Reader: Sendable, Hashable {
        /// As the role that asks: its privileges and the table's policies count.
        case caller
        /// The owner of a SECURITY DEFINER function, by oid.
        case definer(UInt32)
    }

    public var table: UInt32
    /// The column whose values are the keys; nil where only the existence of a row counts.
    public var keySlot: Int?
    /// Over the table's own columns and claims. Policies of the table are not in it yet.
    public var condition: Term
    public var reader: Reader
    /// Every row of `keySlot`'s texts (one column; a constant where there is no key) for whose claims are set, as SQL that
    /// names everything in full and calls nothing that did not come with PostgreSQL.
    public var fillSQL: String

    public init(table: UInt32, keySlot: Int?, condition: Term, reader: Reader, fillSQL: String) {
        self.table = table
        self.keySlot = keySlot
        self.condition = condition
        self.reader = reader
        self.fillSQL = fillSQL
    }
}
