import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// What is read from the stream at once, and kept between reads.
    static let streamReadBytes = 1 << 20

    /// The rest between two reads of a busy stream, in which more comes together; far below what a commit takes.
    static let streamRestMicroseconds: UInt32 = 50
}
