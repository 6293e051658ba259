import Diagnostics

/// Pause of a reader of the event log while the kernel refuses to read. The reader keeps its place and tries again,
/// first soon, then less often.
struct ReadingPause {
    /// Time at which the kernel first refused, in monotonic nanoseconds.
    let began: UInt64
    private var length: UInt64
    private(set) var until: UInt64

    init(at now: UInt64) {
        began = now
        length = Limits.firstReadingPause.wholeNanoseconds
        until = now + length
    }

    /// Doubles the pause, up to its maximum, after another try failed.
    mutating func lengthen(at now: UInt64) {
        length = min(length * 2, Limits.longestReadingPause.wholeNanoseconds)
        until = now + length
    }
}

/// Place where a reader continues after it lost its own.
enum LostPlace {
    /// The log's end, because retention deleted the next entry.
    case end
    /// The first entry after this segment, whose rest cannot be read.
    case segment(UInt64)

    /// Reason that the hub gives to clients when it tells them that changes may be missing.
    var reason: String {
        switch self {
        case .end: "the hub was too slow"
        case .segment: "a part of the server's event log cannot be read"
        }
    }
}
