import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Between two attempts to write after the disk was full or failed.
    static let diskRetryInterval = Duration.seconds(1)

    /// How often the server is asked about our slot.
    static let slotWatchInterval = Duration.seconds(15)
    /// How often it is said again that a slot is in danger.
    static let slotReminderInterval = Duration.seconds(600)
}
