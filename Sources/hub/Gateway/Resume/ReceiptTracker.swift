/// Places of a loop's channels whose acknowledged offsets must be tracked apart from the others, or written down again.
struct ReceiptTracker {
    /// Offset acknowledged by every client that has nothing newer in flight; nil until the first channel is tracked.
    private(set) var mark: UInt64?
    /// Channels whose position differs from their socket's.
    private var separate: Set<UInt32> = []
    private var changed: Set<UInt32> = []

    /// Places that are tracked apart from their sockets, in order.
    var separated: [UInt32] { separate.sorted() }

    /// Begins to track a channel that was joined at the offset.
    mutating func begin(_ place: UInt32, at offset: UInt64) {
        mark = mark ?? offset
        separateFromSocket(place)
    }

    mutating func separateFromSocket(_ place: UInt32) {
        separate.insert(place)
        changed.insert(place)
    }

    /// Lets the socket's receipt apply to the channel.
    mutating func joinToSocket(_ place: UInt32) { separate.remove(place) }

    mutating func noteChange(_ place: UInt32) { changed.insert(place) }

    mutating func forget(_ place: UInt32) {
        separate.remove(place)
        changed.remove(place)
    }

    /// Returns the places whose offsets must be written down, in order, and begins anew. All other channels have reached
    /// the offset.
    mutating func takeChanged(allReached offset: UInt64) -> [UInt32] {
        mark = offset
        defer { changed = [] }
        return changed.sorted()
    }
}
