import Diagnostics

/// Progress of asking again for the read rights of private channels, after the rules changed. Only a few questions are
/// under way at any time, so that joins are not delayed.
struct RightsReview {
    /// Rules under which the channels were admitted; nil until the catalog is known.
    private var rules: String?
    /// Place of the next channel to ask about; nil when all have been asked about.
    private var next: UInt32?
    /// Number of questions under way.
    private var asked = 0
    /// Places of channels whose rights could not be determined. They are asked about again at `againAt`.
    private var again: [UInt32] = []
    private var againAt: UInt64 = 0
    /// Number of failed attempts for each place.
    private var failures: [UInt32: Int] = [:]

    /// True if a channel is asked about again later.
    var isToGoOn: Bool { !again.isEmpty }

    /// Takes the rules of a new catalog. If they are others than before, all channels are asked about.
    mutating func take(_ newRules: String?) {
        let known = rules
        rules = newRules
        // PostgreSQL itself admitted the channels a moment ago, before the catalog was first read.
        guard known != nil, known != newRules else { return }
        (next, again, failures) = (0, [], [:])
    }

    /// Returns the place of the next channel to ask about; nil if none is due. `end` is the end of the places.
    mutating func takeNext(before end: UInt32, now: UInt64) -> UInt32? {
        guard asked < Limits.rightsReviewedAtOnce else { return nil }
        if let place = next, place < end {
            next = place + 1
            return place
        }
        next = nil
        return now >= againAt ? again.popLast() : nil
    }

    /// Notes a question under way.
    mutating func isAsked() { asked += 1 }

    mutating func isAnswered() {
        assert(asked > 0, "each question of a review has one answer")
        asked -= 1
    }

    /// Plans another attempt after a failure. Returns false after too many: a channel with unknown rights has none.
    mutating func tryAgain(_ place: UInt32, now: UInt64) -> Bool {
        let count = failures[place, default: 0] + 1
        guard count < Limits.rightsReviewTries else { return false }
        failures[place] = count
        again.append(place)
        againAt = now + Limits.bindAgainInterval.wholeNanoseconds
        return true
    }
}
