import Diagnostics

/// Internal settings of this module for time and memory. Users cannot rely on them. `Diagnostics/Limits.swift` has the
/// maxima.
extension Limits {
    /// Maximum number of bytes that are read from the stream at a time. The buffer keeps this size between reads.
    static let streamReadBytes = 1 << 20

    /// Microseconds between two reads of a busy stream, so that more bytes collect. This is much shorter than a commit
    /// takes.
    static let streamRestMicroseconds: UInt32 = 50
}
