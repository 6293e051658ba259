import Change
import History

/// Reason why it cannot be found out which clients received a change.
public enum AudienceFailure: Error, Sendable {
    /// The database is unreachable, and the log has no catalog that could replace its catalog.
    case databaseAway
}

/// Verdicts of filters and policies on one change for the bindings of its clients. Evaluates each combination of holder
/// and bindings once. Claims and filters that a bundle has masked are told apart by their mask marks.
struct Verdicts {
    private struct Question: Hashable {
        var claims: [UInt8]
        var role: [UInt8]
        var event: String
        var filter: String?
        var judge: ObjectIdentifier
    }

    private let change: RecordedChange
    /// True if policies are evaluated wherever a catalog is known; false if only filters are.
    private let isJudged: Bool
    /// Result of an evaluation; `isMatch` is nil if it is unknown.
    typealias Verdict = (isMatch: Bool?, reason: String)

    private var known: [Question: Verdict] = [:]
    private var answers = 0
    private var isAway = false

    init(_ change: RecordedChange, isJudged: Bool) {
        self.change = change
        self.isJudged = isJudged
    }

    /// Returns the verdict on whether the hub sent the client the change. The log does not record when a client in
    /// catch-up reached the change. The verdict is unknown if rights, policies or tokens give different answers during
    /// the time until the client had certainly passed the change.
    mutating func verdict(
        of bindings: [ListedBinding], _ attendance: Attendance, at place: UInt64, _ judge: Explainer?, _ judges: Judges?
    ) throws -> Verdict {
        let first = try verdict(of: bindings, attendance.holder(at: change.offset), judge)
        guard let judges, let end = attendance.catchUpEnd(to: change.offset) else { return first }
        // The range begins at the client's return, because the note of the return may follow the change of rights in
        // the log.
        let others = try judges.judges(after: place, through: end)
        for holder in attendance.holders(at: change.offset, through: end) {
            for other in [judge] + others {
                let verdict = try verdict(of: bindings, holder, other)
                if verdict.isMatch != first.isMatch { return (nil, Self.changedMeanwhile) }
            }
        }
        return first
    }

    private static let changedMeanwhile =
        "what it may see changed while it caught up, and when it reached the change is not recorded (ledger = full records it)"

    /// Returns the verdict of the first binding that matches, or else the verdict and reason of the last one that does
    /// not.
    private mutating func verdict(
        of bindings: [ListedBinding], _ holder: RecordedNote, _ judge: Explainer?
    ) throws -> Verdict {
        assert(!bindings.isEmpty, "a client that is judged listens to the table")
        var last: Verdict = (false, "")
        let isUnknown = judge == nil && isJudged
        for binding in bindings {
            guard binding.event == "*" || binding.event == change.operation.name else {
                if last.isMatch != nil { last = (false, "the subscription is for \(binding.event) only") }
                continue
            }
            let found: Verdict = isUnknown ? (nil, Self.unrecorded) : try verdict(of: binding, holder, judge)
            if found.isMatch == true { return found }
            // A known negative verdict does not replace an unknown one.
            if last.isMatch != nil { last = found }
        }
        return last
    }

    private static let unrecorded = "the log does not have the catalog of the time when it came back"

    private mutating func verdict(
        of binding: ListedBinding, _ holder: RecordedNote, _ judge: Explainer?
    ) throws -> Verdict {
        guard let judge else { return (true, binding.filter.map { "if \($0)" } ?? "") }
        let question = Question(
            claims: holder.note.claims, role: holder.note.role, event: binding.event, filter: binding.filter,
            judge: ObjectIdentifier(judge))
        if let known = known[question] { return known }
        let found = ask(judge, holder, binding)
        known[question] = found
        return found
    }

    private mutating func ask(_ judge: Explainer, _ holder: RecordedNote, _ binding: ListedBinding) -> Verdict {
        do throws(ExplainFailure) {
            let explanation = try judge.explain(Explainer.Question(change, to: ExplainedHolder(holder), binding))
            answers += 1
            if explanation.isUndecided { return (nil, explanation.sentence) }
            let reason = explanation.sentence.split(separator: "told: ", maxSplits: 1).last.map(String.init) ?? ""
            return (explanation.isTold, reason)
        } catch {
            switch error {
            case .noRow:
                answers += 1
                return (true, "a truncate is for every client that listens to the table")
            case .badClaims(let reason): return (nil, "not asked: \(reason)")
            case .roleNotRecorded(let role):
                return (nil, "the log does not have the rights of role \(role) for that time")
            case .databaseAway:
                isAway = true
                return (nil, "cannot read the database's catalog")
            }
        }
    }

    /// Throws if the database was unreachable and no other catalog gave an answer.
    func checkThatSomebodyAnswered() throws {
        guard isAway, answers == 0 else { return }
        throw AudienceFailure.databaseAway
    }
}
