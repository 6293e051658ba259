import Diagnostics

/// Catch-up followers of a loop (each makes one pass over the log), and the channels that wait for one.
struct CatchUpPasses {
    private(set) var followers: [Follower] = []
    private var lastNumber: UInt32 = 0
    private var waiting: Set<UInt32> = []

    var isEmpty: Bool { followers.isEmpty }
    var hasRoom: Bool { followers.count < Limits.maximumCatchUps }

    /// Returns a number for a new follower that no other follower of the loop has. The live follower has number 0.
    mutating func nextNumber() -> UInt32 {
        lastNumber = FollowerNumber.next(after: lastNumber)
        if lastNumber == 0 { lastNumber = 1 }
        assert(follower(lastNumber) == nil, "no two followers have one number")
        return lastNumber
    }

    func follower(_ number: UInt32) -> Follower? { followers.first { $0.number == number } }

    mutating func add(_ follower: Follower) {
        followers.append(follower)
        assert(followers.count <= Limits.maximumCatchUps, "there are no more passes than may be")
    }

    mutating func remove(_ follower: Follower) { followers.removeAll { $0 === follower } }

    /// Removes followers that serve no channel any more.
    mutating func removeFinished() { followers.removeAll { $0.catchUpChannels.isEmpty } }

    // MARK: Channels that wait

    var hasWaiting: Bool { !waiting.isEmpty }

    mutating func await(_ place: UInt32) { waiting.insert(place) }
    mutating func cancel(_ place: UInt32) { waiting.remove(place) }

    /// Removes and returns the places (indices) of the waiting channels, in order.
    mutating func takeWaiting() -> [UInt32] {
        defer { waiting = [] }
        return waiting.sorted()
    }
}
