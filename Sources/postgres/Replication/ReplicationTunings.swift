import Diagnostics

/// Internal settings for time and memory of this module; users cannot rely on them. Maxima are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Pause between two attempts to write after the disk was full or failed.
    static let diskRetryInterval = Duration.seconds(1)

    /// Interval between two questions to the server about the hub's slot.
    static let slotWatchInterval = Duration.seconds(15)
    /// Interval after which the hub repeats its warning about a slot in danger.
    static let slotReminderInterval = Duration.seconds(600)
}
