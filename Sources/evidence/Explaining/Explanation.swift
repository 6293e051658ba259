import Catalog
import Judging
import Policy

/// Reasons why the hub sent a change to a client, or did not. Covers each step from the publication to each part of
/// each policy, with the result of the hub and the result of PostgreSQL.
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
        /// True if the role has USAGE on the table's schema.
        public var hasUsage: Bool
        public var selectable: [String]
        public var hidden: [String]
        public var isRowSecurityActive: Bool
    }

    public enum Binding: Sendable {
        case sent(columns: [String])
        /// The client receives "Error 401: Unauthorized" in place of the row.
        case unauthorized
        /// The client receives "Error 400: Bad Request, no primary key" in place of the row.
        case noPrimaryKey
        /// The subscription fails with this text, as the client reads it.
        case failed(String)
    }

    /// Part of a policy's or filter's condition, with its value for the row.
    public struct Part: Sendable {
        public var depth: Int
        public var text: String
        public var isCondition: Bool
        /// True if the value depends on the current time.
        public var readsClock = false
        public var hub: ExplainedTruth
        /// Result of PostgreSQL; nil if it was not asked.
        public var postgres: ExplainedTruth?

        /// True if the hub and PostgreSQL both have a result, and the results differ. A condition that fails on one
        /// side does not count: the order of evaluation is not defined, and a failed condition never allows anyone to
        /// read.
        public var differs: Bool {
            guard let postgres, hub != .undecided, isCondition || !readsClock else { return false }
            if hub.isFailure || postgres.isFailure { return !isCondition && hub.isFailure != postgres.isFailure }
            return hub != postgres
        }
    }

    public struct Policy: Sendable {
        public var name: String
        public var isPermissive: Bool
        /// Description of how the hub evaluates the policy: itself, or by asking PostgreSQL.
        public var classification: String
        public var text: String
        /// Parts of the policy; the first is the policy itself.
        public var parts: [Part]
    }

    /// State of a membership of the holder, with the number of keys that it gives.
    public struct Membership: Sendable {
        public var table: String
        public var keyCount: Int
        /// True if the membership gives the key that the row asks for; nil if unknown.
        public var holdsKey: Bool?
        /// Reason why the membership's keys are not reliable; nil if they are.
        public var trouble: String?
    }

    /// Old or new row of the change, with the results of filter and policies for it.
    public struct Image: Sendable {
        public var isOld: Bool
        /// Names of the columns that policies or the filter read, and that the image lacks.
        public var missing: [String]
        public var filter: [Part]
        public var passesFilter: Bool
        public var policies: [Policy]
        /// All policies together; nil if row level security is not active.
        public var combined: Part?
        public var memberships: [Membership]
        public var isVisible: Bool
        /// Reason why PostgreSQL would refuse the role every query of the table; nil if it would not.
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
    /// Old row of an update, evaluated; nil if the log does not have it.
    public var oldImage: Image?
    public var oldRecord = OldRecord.none
    /// Reason why PostgreSQL was not asked; nil if it was.
    public var withoutPostgres: String?
    /// True if rights and policies are those at the time of the change; false if they are the present ones.
    public var isOfThen = false
    public var notes: [String] = []
    public var isTold = false
    /// Conclusion in one line, which can be quoted alone.
    public var sentence = ""

    /// True if only PostgreSQL can decide the outcome, and PostgreSQL could not be asked.
    public var isUndecided: Bool {
        guard let image else { return false }
        let parts = [image.combined, image.filter.first].compactMap(\.self)
        // Both filter and policies must hold, so one that does not hold decides.
        if parts.contains(where: { !$0.isUndecided && !$0.truth.isTrue }) { return false }
        return parts.contains(where: \.isUndecided) && image.missing.isEmpty
    }

    /// Parts of the policies for which the hub and PostgreSQL have different results.
    public var differences: [Part] {
        // PostgreSQL evaluates present policies, so its results cannot be compared with those of a past catalog.
        if isOfThen { return [] }
        return [image, oldImage].compactMap { $0 }.flatMap { image in
            (image.policies.flatMap(\.parts) + [image.combined].compactMap { $0 }).filter(\.differs)
        }
    }
}

/// Result of evaluating a part of a condition.
public enum ExplainedTruth: Sendable, Hashable {
    case value(String)
    case null
    /// Evaluation failed, with the reason if known.
    case failed(String)
    /// Part that only PostgreSQL can evaluate.
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

    /// Converts PostgreSQL's answer. A boolean that is cast to text is the word "true" or "false".
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

    /// Returns the result as a word in a sentence.
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

/// Reason why an explanation cannot be given.
public enum ExplainFailure: Error, Sendable, Equatable {
    case databaseAway
    /// The log has the catalog of that time, but without the role's rights, because no client had used the role yet.
    case roleNotRecorded(String)
    /// The change has no row: it is a truncate or a message.
    case noRow
    case badClaims(String)
}
