import Diagnostics

/// Internal settings of this module for time and memory. Users cannot rely on them. `Diagnostics/Limits.swift` has the
/// maxima.
extension Limits {
    /// Time between two attempts to write after the disk was full or failed.
    static let diskRetryInterval = Duration.seconds(1)

    /// Interval at which the hub asks the server about its slot.
    static let slotWatchInterval = Duration.seconds(15)
    /// Interval at which the hub repeats its warning about a slot that may be lost.
    static let slotReminderInterval = Duration.seconds(600)
}
