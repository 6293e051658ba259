import Diagnostics

/// Wait of a follower for channels whose bindings cannot be placed. It does not read the log meanwhile, but only for a
/// limited time.
struct BindingStall {
    /// Monotonic time in nanoseconds at which one of the missing channels was last bound, or at which the wait began.
    private var since: UInt64
    /// Monotonic time in nanoseconds since which bindings could be placed; nil while the catalog is unavailable, or
    /// nothing reaches the log that they wait for.
    private var placeableSince: UInt64?
    /// Lowest number of channels without bindings during the wait.
    private var missing: Int

    init(of missing: Int, since now: UInt64) {
        self.missing = missing
        since = now
    }

    /// Updates the wait with the number of channels that still lack bindings. Returns true if it has lasted too long.
    mutating func hasLastedTooLong(missing now: Int, isPlaceable: Bool, at time: UInt64) -> Bool {
        if now < missing { self = BindingStall(of: now, since: time) }
        placeableSince = isPlaceable ? placeableSince ?? time : nil
        if let placeableSince, time - placeableSince > Limits.bindingPatience.wholeNanoseconds { return true }
        return time - since > Limits.maximumCatalogAbsence.wholeNanoseconds
    }
}
