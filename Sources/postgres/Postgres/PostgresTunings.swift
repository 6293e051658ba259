import Diagnostics

/// Internal settings for time and memory of this module; users cannot rely on them. Maxima are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Number of bytes that are read from the stream at once, and kept between reads.
    static let streamReadBytes = 1 << 20

    /// Pause between two reads of a busy stream, so that more data collects; far shorter than a commit takes.
    static let streamRestMicroseconds: UInt32 = 50
}
