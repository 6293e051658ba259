@_spi(Judging) import History

/// Masking of the values in an explanation. It must happen before the sentence of the conclusion is made of them.
extension Explanation {
    /// Returns the explanation with the values of masked columns replaced.
    func masked(_ discretion: Discretion) -> Explanation {
        var shown = self
        shown.image = image?.masked(discretion)
        shown.oldImage = oldImage?.masked(discretion)
        return shown
    }
}

extension Explanation.Image {
    fileprivate func masked(_ discretion: Discretion) -> Self {
        var shown = self
        shown.filter = filter.map { part in
            var part = part.masked(discretion)
            part.text = discretion.filter(part.text)
            return part
        }
        shown.policies = policies.map { policy in
            var policy = policy
            policy.parts = policy.parts.map { $0.masked(discretion) }
            return policy
        }
        shown.combined = combined?.masked(discretion)
        return shown
    }
}

extension Explanation.Part {
    fileprivate func masked(_ discretion: Discretion) -> Self {
        var shown = self
        shown.hub = masked(hub, discretion)
        shown.postgres = postgres.map { masked($0, discretion) }
        assert(!isCondition || shown.truth.isTrue == truth.isTrue, "masking does not change whether a condition holds")
        return shown
    }

    /// Returns a result in masked form. True and false of a condition stay; any other value may be one of the row's.
    private func masked(_ truth: ExplainedTruth, _ discretion: Discretion) -> ExplainedTruth {
        switch truth {
        case .value(let value) where !isCondition: .value(discretion.value(value, of: text))
        case .failed(let message): .failed(discretion.failure(message))
        case .value, .null, .undecided: truth
        }
    }
}
