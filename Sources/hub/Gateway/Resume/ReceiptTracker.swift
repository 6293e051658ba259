/// Channels of a loop whose acknowledged offsets are tracked individually, or must be written to the resume store.
struct ReceiptTracker {
    /// Offset that every client without newer data in flight has acknowledged; nil until the first channel is tracked.
    private(set) var mark: UInt64?
    /// Places (indices) of channels whose acknowledged offset differs from their socket's.
    private var separate: Set<UInt32> = []
    /// Places (indices) of channels whose acknowledged offset must be written to the resume store.
    private var changed: Set<UInt32> = []

    /// Places (indices) of channels that are tracked separately from their sockets, in order.
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

    /// Ends the separate tracking of a channel: its socket's acknowledged offset applies to it.
    mutating func joinToSocket(_ place: UInt32) { separate.remove(place) }

    mutating func noteChange(_ place: UInt32) { changed.insert(place) }

    mutating func forget(_ place: UInt32) {
        separate.remove(place)
        changed.remove(place)
    }

    /// Removes and returns the places (indices) of channels whose offsets must be written, in order. `offset` is the
    /// one that all remaining channels have reached.
    mutating func takeChanged(allReached offset: UInt64) -> [UInt32] {
        mark = offset
        defer { changed = [] }
        return changed.sorted()
    }
}
