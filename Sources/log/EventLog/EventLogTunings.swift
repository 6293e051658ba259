import Diagnostics

/// Internal settings for time and memory of the event log; users cannot rely on them. Maxima are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Distance between the points of a segment's sparse index.
    static let indexStride: UInt64 = 64 << 10

    /// Number of bytes that a reader reads at once, and keeps in memory between entries.
    static let logReadBytes = 1 << 20

    /// Number of bytes that a backward search reads together.
    static let lookbackStretchBytes: UInt64 = 1 << 20

    /// Number of zeros written per step while a spare segment is filled.
    static let zeroFillBytes = 1 << 20

    /// Filling time above which the disk has time to fill the next segment with zeros. The time is that of one segment.
    static let calmFill = Duration.seconds(5)
}
