import Diagnostics
import System

/// Record of a reader's troubles: if it can read the log now, tries again later, or has given up its clients' past.
struct ReadingHealth {
    /// Pause while the kernel refuses to read the log.
    private var pause: ReadingPause?
    /// Text for the operator while commits do not reach clients because the log cannot be read; the text contains no
    /// paths.
    private(set) var unreadable: String?
    /// True if the catch-up must be given up. The client can no longer be given its past: the log cannot be read, or
    /// the kernel has refused reads for too long.
    private(set) var hasLostPast = false

    func isPausing(at now: UInt64) -> Bool { pause.map { now < $0.until } ?? false }

    /// Notes that the log can be read. Returns how long it could not be, if the kernel had refused before.
    mutating func hasRead(at now: UInt64) -> Duration? {
        unreadable = nil
        return pause.take().map { .nanoseconds(Int64(clamping: now - $0.began)) }
    }

    mutating func loseSegment(_ reason: String) { unreadable = reason }

    mutating func losePast() { hasLostPast = true }

    /// Step of the reader after a read was refused.
    enum Refusal {
        /// The first of several tries.
        case first
        case again
        /// The end of the tries: a client that catches up waited long enough.
        case givenUp
    }

    /// Notes that the kernel refused to read, for the reason in `text`.
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
