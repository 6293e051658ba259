import Diagnostics

/// Internal limits of time and memory for the event log. They are no part of a promise. The maxima that users rely on
/// are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Distance in bytes between two points of a segment's index.
    static let indexStride: UInt64 = 64 << 10

    /// Number of bytes that a reader reads at a time and keeps in memory.
    static let logReadBytes = 1 << 20

    /// Number of bytes that a backward search reads at a time.
    static let lookbackStretchBytes: UInt64 = 1 << 20

    /// Number of zero bytes that are written at a time while a spare segment is filled.
    static let zeroFillBytes = 1 << 20

    /// Duration of filling one segment above which the disk has time to fill the next segment with zeros.
    static let calmFill = Duration.seconds(5)
}
