import Diagnostics

/// Limited wait of a follower, which does not read the log while some channels' bindings cannot be placed.
struct BindingStall {
    /// Monotonic time in nanoseconds at which a missing channel was last bound, or at which the wait began.
    private var since: UInt64
    /// Monotonic time in nanoseconds since which bindings could be placed; nil while the catalog is unavailable.
    private var placeableSince: UInt64?
    /// Lowest number of channels without bindings during the wait.
    private var missing: Int

    init(of missing: Int, since now: UInt64) {
        self.missing = missing
        since = now
    }

    /// Updates the wait. Returns true if it has lasted too long.
    mutating func hasLastedTooLong(missing now: Int, isPlaceable: Bool, at time: UInt64) -> Bool {
        if now < missing { self = BindingStall(of: now, since: time) }
        placeableSince = isPlaceable ? placeableSince ?? time : nil
        if let placeableSince, time - placeableSince > Limits.bindingPatience.wholeNanoseconds { return true }
        return time - since > Limits.maximumCatalogAbsence.wholeNanoseconds
    }
}
