import Bytes
import Change
import Judging
import Matching
import Policy

/// Questions about rows that the indexes leave to PostgreSQL.
extension PlacedBindings {
    /// Result of asking PostgreSQL if a member (binding) receives a change.
    enum Inquiry {
        /// The change is not for the member, so no question was necessary.
        case nobody
        case pending(PendingQuestion)
        /// The row lacks a value on which the decision depends, so PostgreSQL could not decide either.
        case unanswerable
        /// The decision depends on memberships at the time of the commit, which the hub can no longer find out.
        case unknown
    }

    /// Asks PostgreSQL about those parts of a member's predicate that the hub cannot decide: its filter, its holder's
    /// policy, or both.
    ///
    /// The hub evaluates each part separately. Even if the whole predicate is undecided, one part may be decided.
    mutating func ask(
        _ questions: inout NodeQuestions, _ member: Member, _ change: borrowing ReadableChange,
        _ image: RowTexts.Image, _ moment: ChangeMoment, _ asked: inout AskedQuestions
    ) throws(ByteError) -> Inquiry {
        guard questions.verdict == .yes || questions.verdict == .ask else { return .nobody }
        switch try policies.verdict(member, on: change.change, image, &index) {
        case .yes: return try askFilter(&questions, change.change, image, &asked)
        case .no, .unknown, .notYes, .failed: return .nobody
        case .ask:
            guard !policies.isUnknown(member.policy, at: moment.commitLSN) else { return .unknown }
            return try askPolicy(&questions, member.policy, change, image, moment, &asked)
        }
    }

    /// Returns the question about the filter. Members of the node whose policies are decided share it.
    private mutating func askFilter(
        _ questions: inout NodeQuestions, _ change: borrowing Change, _ image: RowTexts.Image,
        _ asked: inout AskedQuestions
    ) throws(ByteError) -> Inquiry {
        if let known = questions.ofFilter { return .pending(known) }
        guard let filter = questions.filter, let question = try judged(filter, change, image) else {
            return .unanswerable
        }
        let pending = PendingQuestion()
        asked.add(pending, question)
        questions.share(ofFilter: pending)
        return .pending(pending)
    }

    private mutating func askPolicy(
        _ questions: inout NodeQuestions, _ policy: UInt32, _ change: borrowing ReadableChange,
        _ image: RowTexts.Image, _ moment: ChangeMoment, _ asked: inout AskedQuestions
    ) throws(ByteError) -> Inquiry {
        assert(policy != Member.noPolicy, "only a policy is asked about")
        if let last = questions.ofPolicy, last.policy == policy { return .pending(last.question) }
        let pending = PendingQuestion(
            parts: questions.verdict == .ask ? 2 : 1, hidesFailures: questions.hasFilter)
        guard try policies.ask(policy, pending, change, image, moment.number, &asked) else {
            return .unanswerable
        }
        if questions.verdict == .ask {
            if let filter = questions.filter, let question = try judged(filter, change.change, image) {
                asked.add(pending, question)
            } else {
                // PostgreSQL is asked only about the policy. Its answer shows if the client may have missed the change.
                pending.take(nil)
            }
        }
        questions.share(pending, of: policy)
        return .pending(pending)
    }

    /// Returns the question about a filter on a row; nil if the row lacks a value that the filter reads.
    private mutating func judged(
        _ filter: Question, _ change: borrowing Change, _ image: RowTexts.Image
    ) throws(ByteError) -> JudgedQuestion? {
        let isPast = image == .old && change.operation != .delete
        return JudgedQuestion(filter, row: try index.texts(of: filter.slots, in: change, image: isPast ? .old : .new))
    }
}
