import Bytes
import Diagnostics

/// Memory of the refusals that the ledger has recorded recently. A refused client may try again every second, so the
/// same refusal of a user is recorded once per interval, and only a limited number of different ones. All anonymous
/// users count as one.
///
/// When the memory is full, it forgets everything, and refusals are recorded again.
struct RefusalMemory {
    enum Verdict {
        /// The refusal was not recorded recently; the caller records it.
        case news
        /// The user has reached the limit of different refusals; the caller records once that there are more.
        case tooMany
        /// The refusal was recorded recently or is over the limit; the caller does not record it.
        case known
    }

    private struct Window {
        /// Monotonic time in nanoseconds at which the user's interval (`Limits.refusalNoteInterval`) began.
        let began: UInt64
        /// Hashes of the refusals recorded in the interval.
        var noted: Set<UInt64> = []
    }

    /// Recorded refusals of the current interval, by the hash of the user. Texts are not stored, because a token may
    /// contain long ones.
    private var windows: [UInt64: Window] = [:]

    /// Records a refusal of the user. The result says whether the ledger must record it too.
    mutating func note(of subject: [UInt8], _ topic: [UInt8], _ reason: String, at now: UInt64) -> Verdict {
        let interval = Limits.refusalNoteInterval.wholeNanoseconds
        let user = Self.hash(subject)
        var window = windows[user] ?? Window(began: now)
        if now - window.began >= interval { window = Window(began: now) }
        // Digits are ignored, because a reason may contain a duration that differs each time.
        let refusal = Self.hash(topic, reason.utf8.filter { !(48...57).contains($0) })
        guard window.noted.count <= Limits.refusalsOfUser, window.noted.insert(refusal).inserted else { return .known }
        if windows[user] == nil, windows.count >= Limits.usersWithRefusals {
            windows = windows.filter { now - $0.value.began < interval }
            if windows.count >= Limits.usersWithRefusals { windows = [:] }
        }
        windows[user] = window
        return window.noted.count <= Limits.refusalsOfUser ? .news : .tooMany
    }

    private static func hash(_ texts: [UInt8]...) -> UInt64 {
        var hash = KeyHash(seed: 0x7265_6675_7361_6c)
        for text in texts { hash.combine(text.rawBytes) }
        return hash.value
    }
}
