import Diagnostics

/// Pause of a log reader while the kernel refuses reads. The reader keeps its place and tries again at growing
/// intervals.
struct ReadingPause {
    /// Monotonic time in nanoseconds at which the kernel first refused a read.
    let began: UInt64
    private var length: UInt64
    /// Monotonic time in nanoseconds at which the reader tries again.
    private(set) var until: UInt64

    init(at now: UInt64) {
        began = now
        length = Limits.firstReadingPause.wholeNanoseconds
        until = now + length
    }

    /// Doubles the pause, up to its maximum, after another read was refused.
    mutating func lengthen(at now: UInt64) {
        length = min(length * 2, Limits.longestReadingPause.wholeNanoseconds)
        until = now + length
    }
}

/// Place where a reader continues after the log could not be read at its own place.
enum LostPlace {
    /// The reader continues at the log's end, because retention deleted the next entry.
    case end
    /// The reader continues after this segment, whose rest cannot be read.
    case segment(UInt64)

    /// Reason that the hub sends to clients when it tells them that changes may be missing.
    var reason: String {
        switch self {
        case .end: "the hub was too slow"
        case .segment: "a part of the server's event log cannot be read"
        }
    }
}
