import Diagnostics

/// Since when the log waits for bindings that cannot be placed: not for ever, whatever the catalog does meanwhile.
struct HoldUp {
    /// Since when none of them was placed.
    private var since: UInt64
    /// Since when they could have been: nil while the catalog is away.
    private var placeableSince: UInt64?
    /// So many are missing, at the fewest.
    private var missing: Int

    init(of missing: Int, since now: UInt64) {
        self.missing = missing
        since = now
    }

    /// True when they had their time.
    mutating func hasLastedTooLong(missing now: Int, isPlaceable: Bool, at time: UInt64) -> Bool {
        if now < missing { self = HoldUp(of: now, since: time) }
        placeableSince = isPlaceable ? placeableSince ?? time : nil
        if let placeableSince, time - placeableSince > Limits.bindingPatience.wholeNanoseconds { return true }
        return time - since > Limits.maximumCatalogAbsence.wholeNanoseconds
    }
}
