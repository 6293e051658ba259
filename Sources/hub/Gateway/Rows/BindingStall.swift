import Diagnostics

/// Wait of the log for bindings that cannot be placed. The wait is limited, whatever the catalog does meanwhile.
struct BindingStall {
    /// Time at which a binding was last placed, or at which the wait began.
    private var since: UInt64
    /// Time from which the bindings could have been placed; nil while the catalog is unavailable.
    private var placeableSince: UInt64?
    /// Lowest number of missing channels so far.
    private var missing: Int

    init(of missing: Int, since now: UInt64) {
        self.missing = missing
        since = now
    }

    /// Updates the wait, and returns true if it has lasted too long.
    mutating func hasLastedTooLong(missing now: Int, isPlaceable: Bool, at time: UInt64) -> Bool {
        if now < missing { self = BindingStall(of: now, since: time) }
        placeableSince = isPlaceable ? placeableSince ?? time : nil
        if let placeableSince, time - placeableSince > Limits.bindingPatience.wholeNanoseconds { return true }
        return time - since > Limits.maximumCatalogAbsence.wholeNanoseconds
    }
}
