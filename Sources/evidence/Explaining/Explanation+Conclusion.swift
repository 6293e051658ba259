import Catalog
import Change
import History

/// Conclusion from all steps of an explanation.
extension Explanation {
    /// Returns the explanation with its conclusion: if the client would have received the change, and a sentence with
    /// the reason.
    func concluded(_ question: Explainer.Question) -> Explanation {
        var result = self
        if isUndecided, publication.hasOperation, wantsOperation {
            let reason = withoutPostgres ?? "it could not be asked"
            result.sentence = "only PostgreSQL can say whether \(holder) was told: \(reason)"
            return result
        }
        let (isTold, reason) = verdict(question)
        assert(!isTold || publication.hasOperation && wantsOperation, "only a change that was asked for is told")
        assert(!isTold || image?.isMatch == true, "a change that is told passes the filter and the policies")
        result.isTold = isTold
        result.sentence = "\(holder) \(isTold ? Self.wouldHaveBeen : "was NOT") told: \(reason)"
        return result
    }

    /// Verb of a conclusion from rights, filter and policies alone, which do not show if a client was connected.
    private static let wouldHaveBeen = "would have been"

    /// Returns the explanation changed for a user who was subscribed and received the change, according to the ledger.
    public func confirmed() -> Explanation {
        var result = self
        if isTold {
            result.sentence = sentence.replacing(
                " \(Self.wouldHaveBeen) told: ", with: " was told: ", maxReplacements: 1)
        }
        return result
    }

    /// Returns if the client would have received the change, and the reason in words.
    private func verdict(_ question: Explainer.Question) -> (isTold: Bool, reason: String) {
        guard publication.isPublished else { return (false, "publication \(publication.name) does not have the table") }
        guard publication.hasOperation else {
            return (false, "publication \(publication.name) does not publish this operation")
        }
        if case .failed(let message)? = binding {
            guard role?.exists == true else { return (false, "there is no role \(question.holder.role)") }
            return (false, "the subscription is refused: \(message)")
        }
        guard wantsOperation else { return (false, "the subscription is for \(question.operations.event) only") }
        guard let image else { return (false, "the change has no row to judge") }
        if image.combined?.isUndecided == true, !image.passesFilter { return (false, image.whyFiltered) }
        guard image.isVisible else { return (false, image.whyHidden) }
        guard image.passesFilter else { return (false, image.whyFiltered) }
        switch binding {
        case .unauthorized? where image.combined != nil:
            // With policies that hide rows, the hub sends clients nothing about rows that they may not see.
            return (false, "role \(question.holder.role) may not SELECT the whole primary key")
        case .unauthorized? where question.change.operation != .delete:
            return (
                false,
                "role \(question.holder.role) may not SELECT the whole primary key: \"Error 401: Unauthorized\" is sent instead"
            )
        case .noPrimaryKey? where question.change.operation != .delete:
            return (false, "the table has no primary key: \"Error 400: Bad Request\" is sent instead")
        default: return (true, image.whyVisible)
        }
    }
}

extension Explanation.Image {
    fileprivate var whyVisible: String {
        guard combined != nil else { return "row level security does not apply" }
        guard let policy = policies.first(where: { $0.isPermissive && $0.truth.isTrue }) else {
            return "the policies together are true"
        }
        return policy.sentence(policy.truth)
    }

    fileprivate var whyHidden: String {
        if let absent = missing.first, combined?.hub == .undecided, combined?.postgres == nil {
            return "the row's image does not hold \(absent), which a policy reads"
        }
        if let refusal { return refusal }
        let permissive = policies.filter(\.isPermissive)
        guard !permissive.isEmpty else { return "no policy lets the role SELECT" }
        if let closing = policies.first(where: { !$0.isPermissive && !$0.truth.isTrue }) {
            return "restrictive " + closing.sentence(closing.truth)
        }
        let others = permissive.count > 1 ? ", and no other policy allows the row" : ""
        return permissive[0].sentence(permissive[0].truth) + others
    }

    fileprivate var whyFiltered: String {
        if let absent = missing.first { return "the row's image does not hold \(absent), which the filter reads" }
        let failing = filter.dropFirst().first { !$0.truth.isTrue } ?? filter.first
        guard let failing else { return "the filter does not hold" }
        return "filter \(failing.text) is \(failing.truth.word(isCondition: true))"
    }
}

extension Explanation.Part {
    /// True if only PostgreSQL can evaluate this part, and PostgreSQL could not be asked.
    var isUndecided: Bool { hub == .undecided && postgres == nil }

    /// Result of the hub, or of PostgreSQL if the hub leaves this part to PostgreSQL.
    var truth: ExplainedTruth { hub == .undecided ? postgres ?? hub : hub }
}

extension Explanation.Policy {
    var truth: ExplainedTruth { parts.first?.truth ?? .undecided }

    fileprivate func sentence(_ truth: ExplainedTruth) -> String {
        let word = truth.word(isCondition: true)
        let part = decisive
        return "policy \"\(name)\" is \(word) because \(part.text) is \(part.truth.word(isCondition: true))"
    }

    /// Smallest part that determined the result. The search descends while a subordinate part has the same result.
    private var decisive: Explanation.Part {
        assert(!parts.isEmpty, "the first part of a policy is the policy itself")
        var place = 0
        while let below = children(of: place).first(where: {
            parts[$0].isCondition && parts[$0].truth == parts[place].truth
        }) {
            assert(below > place, "the search only descends")
            place = below
        }
        return parts[place]
    }

    private func children(of place: Int) -> [Int] {
        var found: [Int] = []
        for index in parts.indices.dropFirst(place + 1) {
            if parts[index].depth <= parts[place].depth { break }
            if parts[index].depth == parts[place].depth + 1 { found.append(index) }
        }
        return found
    }
}
