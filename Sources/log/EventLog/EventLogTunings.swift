import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Distance of the points of a segment's sparse index.
    static let indexStride: UInt64 = 64 << 10

    /// What a reader of the log reads at once, and keeps between entries.
    static let logReadBytes = 1 << 20

    /// What is looked at together when the log is searched backwards.
    static let lookbackStretchBytes: UInt64 = 1 << 20

    /// Steps in which a spare segment is filled with zeros.
    static let zeroFillBytes = 1 << 20

    /// A segment that took longer to fill than this leaves the disk time to fill the next one with zeros.
    static let calmFill = Duration.seconds(5)
}
