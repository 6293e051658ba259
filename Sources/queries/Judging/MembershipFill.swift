import Catalog
import Change

/// A membership's keys as PostgreSQL read them for one claimant.
public enum MembershipFill: Sendable {
    case filled(FilledMembership)
    /// PostgreSQL refuses to read them for this claimant, and would again: a missing privilege, claims that are none.
    case failed(sqlState: String)
    /// They are too many, or nobody here may read them as they would have to be read, which says nothing of the claimant:
    /// each row is to be asked about.
    case unreadable
    /// They could not be read now.
    case unavailable
}

public struct FilledMembership: Sendable {
    public struct Key: Sendable, Hashable {
        /// Nil is NULL.
        public var text: [UInt8]?
        /// Rows that have it.
        public var count: Int

        public init(text: [UInt8]?, count: Int) {
            self.text = text
            self.count = count
        }
    }

    public var keys: [Key]
    /// What these transactions did is in the keys, and nothing else.
    public var snapshot: VisibleTransactions
    /// Where the log of the database stood at some moment after the snapshot was taken.
    public var position: LSN

    public init(keys: [Key], snapshot: VisibleTransactions, position: LSN) {
        self.keys = keys
        self.snapshot = snapshot
        self.position = position
    }
}

/// One row, one claimant, and expressions over the row: for an operator who asks why.
public struct PolicyExplanation: Sendable {
    var row: JudgedRow
    /// Its columns' texts.
    var texts: [String?]
    var claimant: Claimant
    var expressions: [String]

    public init(row: JudgedRow, texts: [String?], claimant: Claimant, expressions: [String]) {
        precondition(texts.count == row.columns.count, "a row has a text for each column")
        self.row = row
        self.texts = texts
        self.claimant = claimant
        self.expressions = expressions
    }

    var byteCount: Int {
        PolicyQuestion.bytes(texts) + expressions.reduce(0) { $0 + $1.utf8.count } + claimant.claims.utf8.count
    }
}

public enum ExplainedValue: Sendable, Equatable {
    /// As text; nil is NULL.
    case value(String?)
    /// In PostgreSQL's words.
    case failed(sqlState: String, message: String)
}
