import Diagnostics

/// Followers behind the log's end, and the channels that wait for the next one.
struct CatchUpPasses {
    private(set) var followers: [Follower] = []
    private var lastNumber: UInt32 = 0
    private var waiting: Set<UInt32> = []

    var isEmpty: Bool { followers.isEmpty }
    var hasRoom: Bool { followers.count < Limits.maximumCatchUps }

    /// Returns the number of a new follower: no other one of the loop has it. The live follower's number is 0.
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

    /// Removes the followers whose channels have all gone on.
    mutating func removeFinished() { followers.removeAll { $0.catchUpChannels.isEmpty } }

    // MARK: Channels that wait

    var hasWaiting: Bool { !waiting.isEmpty }

    mutating func await(_ place: UInt32) { waiting.insert(place) }
    mutating func cancel(_ place: UInt32) { waiting.remove(place) }

    /// Returns the places of the waiting channels, in order, which wait no more.
    mutating func takeWaiting() -> [UInt32] {
        defer { waiting = [] }
        return waiting.sorted()
    }
}
