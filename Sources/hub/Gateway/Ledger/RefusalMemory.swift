import Bytes
import Diagnostics

/// Memory of the refusals that the ledger has noted lately. A refused client may ask again every second, so the same
/// refusal of a user is noted once in a while, and only so many different ones. Anonymous users count as one.
///
/// At its limit the memory forgets everything, and refusals are noted again.
struct RefusalMemory {
    enum Verdict {
        /// The refusal has not been noted lately. The caller notes it.
        case news
        /// First of the refusals that are not noted, because many different ones of the user have been lately. The
        /// caller notes that there were more.
        case tooMany
        /// The refusal is not to be noted.
        case known
    }

    private struct Window {
        let began: UInt64
        /// Hashes of the refusals that were noted since.
        var noted: Set<UInt64> = []
    }

    /// Windows by the hashes of users. Texts are not kept, because a token may contain long ones.
    private var windows: [UInt64: Window] = [:]

    mutating func note(of subject: [UInt8], _ topic: [UInt8], _ reason: String, at now: UInt64) -> Verdict {
        let interval = Limits.refusalNoteInterval.wholeNanoseconds
        let user = Self.hash(subject)
        var window = windows[user] ?? Window(began: now)
        if now - window.began >= interval { window = Window(began: now) }
        // The reason may say how long ago something was, which differs each time.
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
