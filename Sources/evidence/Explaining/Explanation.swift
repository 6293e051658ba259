import Catalog
import Judging
import Policy

/// Why a change was told to somebody, or not: from the publication to each part of each policy, as the hub evaluates it and
/// as PostgreSQL does.
public struct Explanation: Sendable {
    public struct Publication: Sendable {
        public var name: String
        public var isPublished: Bool
        public var operations: RowOperations
        public var hasOperation: Bool
    }

    public struct Role: Sendable {
        public var name: String
        public var exists: Bool
        /// Of the table's schema.
        public var hasUsage: Bool
        public var selectable: [String]
        public var hidden: [String]
        public var isRowSecurityActive: Bool
    }

    public enum Binding: Sendable {
        case sent(columns: [String])
        /// "Error 401: Unauthorized" in the row's place.
        case unauthorized
        /// "Error 400: Bad Request, no primary key" in the row's place.
        case noPrimaryKey
        /// In the words that the client reads.
        case failed(String)
    }

    /// A part of a condition with its value.
    public struct Part: Sendable {
        public var depth: Int
        public var text: String
        public var isCondition: Bool
        /// It is another value a moment later.
        public var readsClock = false
        public var hub: ExplainedTruth
        /// Nil where PostgreSQL was not asked.
        public var postgres: ExplainedTruth?

        /// Both know, and do not say the same. Of a condition that fails on one side nothing is said: what else is looked at,
        /// and what first, is not defined; neither lets anybody read by it.
        public var differs: Bool {
            guard let postgres, hub != .undecided, isCondition || !readsClock else { return false }
            if hub.isFailure || postgres.isFailure { return !isCondition && hub.isFailure != postgres.isFailure }
            return hub != postgres
        }
    }

    public struct Policy: Sendable {
        public var name: String
        public var isPermissive: Bool
        /// How the hub decides it.
        public var classification: String
        public var text: String
        /// The policy itself first.
        public var parts: [Part]
    }

    /// The keys that a membership gives the holder now.
    public struct Membership: Sendable {
        public var table: String
        public var keyCount: Int
        /// Nil where that is not known.
        public var holdsKey: Bool?
        /// What is wrong with it.
        public var trouble: String?
    }

    /// One of the change's rows, judged.
    public struct Image: Sendable {
        public var isOld: Bool
        /// Columns that policies or the filter read and the image has not.
        public var missing: [String]
        public var filter: [Part]
        public var passesFilter: Bool
        public var policies: [Policy]
        /// All policies together; nil where row level security is not active.
        public var combined: Part?
        public var memberships: [Membership]
        public var isVisible: Bool
        /// Why PostgreSQL would refuse the role any query of the table.
        public var refusal: String?

        public var isMatch: Bool { passesFilter && isVisible }
    }

    public enum OldRecord: String, Sendable {
        case none, keys, whole
    }

    public var holder: String
    public var publication: Publication
    public var role: Role?
    public var binding: Binding?
    public var wantsOperation = true
    public var image: Image?
    /// Of an update, where the log has the row as it was.
    public var oldImage: Image?
    public var oldRecord = OldRecord.none
    /// Why PostgreSQL was not asked.
    public var withoutPostgres: String?
    /// Rights and policies are those by which the change was judged; else they are those of now.
    public var isOfThen = false
    public var notes: [String] = []
    public var isTold = false
    /// One line to quote.
    public var sentence = ""

    /// Only PostgreSQL decides, and it could not be asked.
    public var isUndecided: Bool {
        guard let image else { return false }
        let parts = [image.combined, image.filter.first].compactMap(\.self)
        // Both have to hold: one that does not is enough.
        if parts.contains(where: { !$0.isUndecided && !$0.truth.isTrue }) { return false }
        return parts.contains(where: \.isUndecided) && image.missing.isEmpty
    }

    /// Where the hub and PostgreSQL do not agree.
    public var differences: [Part] {
        // What PostgreSQL says is of now.
        if isOfThen { return [] }
        return [image, oldImage].compactMap { $0 }.flatMap { image in
            (image.policies.flatMap(\.parts) + [image.combined].compactMap { $0 }).filter(\.differs)
        }
    }
}

/// What a part comes to.
public enum ExplainedTruth: Sendable, Hashable {
    case value(String)
    case null
    /// Why, where that is known.
    case failed(String)
    /// The hub leaves it to PostgreSQL.
    case undecided

    init(_ value: PartValue) {
        switch value {
        case .value(let text): self = .value(String(decoding: text, as: UTF8.self))
        case .null: self = .null
        case .failed: self = .failed("")
        case .unknown: self = .undecided
        }
    }

    init(_ verdict: Verdict) {
        switch verdict {
        case .yes: self = .value("t")
        case .no: self = .value("f")
        case .unknown: self = .null
        case .failed: self = .failed("")
        case .ask, .notYes: self = .undecided
        }
    }

    /// PostgreSQL's answer: a cast of a boolean to text says the whole word.
    init(_ value: ExplainedValue, isCondition: Bool) {
        switch value {
        case .value(nil): self = .null
        case .value("true") where isCondition: self = .value("t")
        case .value("false") where isCondition: self = .value("f")
        case .value(let text?): self = .value(text)
        case .failed(let state, let message): self = .failed("\(message) (\(state))")
        }
    }

    public var isTrue: Bool { self == .value("t") }

    var isFailure: Bool { if case .failed = self { true } else { false } }

    /// As a word in a sentence.
    public func word(isCondition: Bool) -> String {
        switch self {
        case .value("t") where isCondition: "true"
        case .value("f") where isCondition: "false"
        case .value(let text): text
        case .null: "NULL"
        case .failed(let reason): reason.isEmpty ? "an error" : "an error: \(reason)"
        case .undecided: "left to PostgreSQL"
        }
    }
}

/// Why there is no explanation.
public enum ExplainFailure: Error, Sendable, Equatable {
    case databaseAway
    /// The log has the catalog of that time, but no record of the role: nobody had asked about it.
    case roleNotRecorded(String)
    /// A truncate, or a message.
    case noRow
    case badClaims(String)
}
