import Diagnostics

/// Progress of asking again for the read rights of private channels after policies changed. Only a few questions are
/// open at any time, so that joins are not delayed.
struct RightsReview {
    /// Text of the policies of `realtime.messages` by which the channels were admitted; nil until the catalog is known.
    private var rules: String?
    /// Place (index) of the next channel to ask about; nil if all have been asked about.
    private var next: UInt32?
    /// Number of open questions about read rights.
    private var asked = 0
    /// Places (indices) of channels whose rights could not be found out. The hub asks about them again at `againAt`.
    private var again: [UInt32] = []
    /// Monotonic time in nanoseconds from which the hub asks again about the channels in `again`.
    private var againAt: UInt64 = 0
    /// Number of failed attempts to find out a channel's rights, by the channel's place.
    private var failures: [UInt32: Int] = [:]

    /// True if the hub will ask again later about some channel whose rights could not be found out.
    var continuesLater: Bool { !again.isEmpty }

    /// Sets the policies of a new catalog. If they differ from the former ones, begins a review of all channels.
    mutating func take(_ newRules: String?) {
        let known = rules
        rules = newRules
        // Before the catalog was first read, PostgreSQL itself admitted the channels by its current policies.
        guard known != nil, known != newRules else { return }
        (next, again, failures) = (0, [], [:])
    }

    /// Returns the place of the next channel to ask about; nil if none is due. `end` is the first place without a
    /// channel.
    mutating func takeNext(before end: UInt32, now: UInt64) -> UInt32? {
        guard asked < Limits.rightsReviewedAtOnce else { return nil }
        if let place = next, place < end {
            next = place + 1
            return place
        }
        next = nil
        return now >= againAt ? again.popLast() : nil
    }

    /// Counts one more open question.
    mutating func isAsked() { asked += 1 }

    mutating func isAnswered() {
        assert(asked > 0, "each question of a review has one answer")
        asked -= 1
    }

    /// Plans another question about a channel whose rights could not be found out. Returns false after too many
    /// failures: the channel then counts as without rights.
    mutating func tryAgain(_ place: UInt32, now: UInt64) -> Bool {
        let count = failures[place, default: 0] + 1
        guard count < Limits.rightsReviewTries else { return false }
        failures[place] = count
        again.append(place)
        againAt = now + Limits.bindAgainInterval.wholeNanoseconds
        return true
    }
}
