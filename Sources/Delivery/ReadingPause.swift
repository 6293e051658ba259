import Diagnostics

/// Pause of a reader of the event log while the kernel refuses to read: it stays where it is and tries again, at first
/// soon, then less often.
struct ReadingPause {
    /// When the kernel refused first, in monotonic nanoseconds.
    let began: UInt64
    private var length: UInt64
    private(set) var until: UInt64

    init(at now: UInt64) {
        began = now
        length = Limits.firstReadingPause.wholeNanoseconds
        until = now + length
    }

    /// It was tried again in vain.
    mutating func lengthen(at now: UInt64) {
        length = min(length * 2, Limits.longestReadingPause.wholeNanoseconds)
        until = now + length
    }
}

/// Where a reader goes on when it lost its place.
enum LostPlace {
    /// At the log's end: retention deleted what came next.
    case end
    /// Behind this segment, what is left of which does not read.
    case segment(UInt64)

    /// Words for those who are told that changes may be missing.
    var reason: String {
        switch self {
        case .end: "the hub was too slow"
        case .segment: "a part of the server's event log cannot be read"
        }
    }
}
