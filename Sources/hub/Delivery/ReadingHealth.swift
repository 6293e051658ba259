import Diagnostics
import System

/// State of a reader of the log: it can read, or it will try again, or it has given up a catch-up.
struct ReadingHealth {
    /// Current pause because the kernel refuses to read the log; nil if the log can be read.
    private var pause: ReadingPause?
    /// Reason, for the operator, why the log cannot be read, so that commits do not reach clients. It contains no file
    /// paths.
    private(set) var unreadable: String?
    /// True if the catch-up must end, because the log cannot be read there, or the kernel has refused reads for too
    /// long.
    private(set) var hasLostPast = false

    func isPausing(at now: UInt64) -> Bool { pause.map { now < $0.until } ?? false }

    /// Records that the log can be read. Returns how long the kernel had refused to read it; nil if it had not.
    mutating func hasRead(at now: UInt64) -> Duration? {
        unreadable = nil
        return pause.take().map { .nanoseconds(Int64(clamping: now - $0.began)) }
    }

    mutating func loseSegment(_ reason: String) { unreadable = reason }

    mutating func losePast() { hasLostPast = true }

    /// Next step of the reader after the kernel refused a read.
    enum Refusal {
        /// First refusal of the kernel: the reader will try again.
        case first
        /// Repeated refusal of the kernel: the reader will try again.
        case again
        /// The reader gives up, because a client that catches up has waited for the maximum time.
        case givenUp
    }

    /// Records that the kernel refused a read, for the reason in `text`. `ofPast` is true for a catch-up.
    mutating func isRefused(_ text: String, ofPast: Bool, at now: UInt64) -> Refusal {
        unreadable = text
        guard let known = pause else {
            pause = ReadingPause(at: now)
            return .first
        }
        pause?.lengthen(at: now)
        guard ofPast, now - known.began > Limits.pastReadingPatience.wholeNanoseconds else { return .again }
        hasLostPast = true
        return .givenUp
    }
}
