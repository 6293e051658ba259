import Bytes
import Change
import Judging
import Matching
import Policy

/// Questions about rows that the indexes leave to PostgreSQL.
extension PlacedBindings {
    /// Result of asking about a member.
    enum Inquiry {
        /// The change is not for the member.
        case nobody
        case pending(PendingQuestion)
        /// A value that the decision depends on is absent: PostgreSQL could not tell either.
        case unanswerable
        /// The answer depends on memberships at that time, which are no longer known.
        case unknown
    }

    /// Asks about the open parts of a member's predicate: its filter, its holder's policy, or both.
    ///
    /// Each part is judged by itself: if both together are open, one of them may still be decided.
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

    /// Returns the question of the filter, shared by all members of the node whose policies leave nothing open.
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
                // Only the policy can say if there was anything to miss.
                pending.take(nil)
            }
        }
        questions.share(pending, of: policy)
        return .pending(pending)
    }

    /// Returns the filter's question about a row; nil if a value is absent that the question needs.
    private mutating func judged(
        _ filter: Question, _ change: borrowing Change, _ image: RowTexts.Image
    ) throws(ByteError) -> JudgedQuestion? {
        let isPast = image == .old && change.operation != .delete
        return JudgedQuestion(filter, row: try index.texts(of: filter.slots, in: change, image: isPast ? .old : .new))
    }
}
