/// Output that one blocked connection has not taken yet, in order. The bytes stay in chunks of the arena, which the
/// backlog retains.
final class Backlog {
    struct Entry {
        var extent: PieceArena.Extent
        /// True if the entry belongs to the same frame as the entry before it.
        var continues: Bool
    }

    /// Queue of entries, with `head` as the index of the first. Entries come and go in batches, so an array is enough.
    private var entries: [Entry] = []
    private var head = 0
    private(set) var byteCount = 0
    /// Number of bytes at the front that TLS has already put into a record. They must be offered again unchanged.
    var committed = 0
    /// Time at which the connection last took bytes.
    var takenAt: UInt64 = 0
    /// Seat of the connection; nil while the backlog is free.
    var seat: Int?

    var isEmpty: Bool { head == entries.count }
    var count: Int { entries.count - head }
    subscript(_ index: Int) -> Entry { entries[head + index] }

    /// Appends an entry whose chunk the caller has retained.
    func append(_ entry: Entry) {
        entries.append(entry)
        byteCount += Int(entry.extent.length)
    }

    /// Removes bytes that were sent from the front and releases their chunks.
    func advance(_ sent: Int, _ arena: PieceArena) {
        precondition(sent <= byteCount, "no more can be sent than is there")
        var left = sent
        byteCount -= sent
        committed = max(0, committed - sent)
        while left > 0 || (!isEmpty && entries[head].extent.length == 0) {
            let length = Int(entries[head].extent.length)
            guard left >= length else {
                entries[head].extent.offset += UInt32(left)
                entries[head].extent.length -= UInt32(left)
                // The entry is now the rest of a frame that has begun.
                entries[head].continues = true
                break
            }
            left -= length
            arena.release(entries[head].extent.chunk)
            head += 1
        }
        trim()
    }

    private func trim() {
        if isEmpty {
            entries.removeAll(keepingCapacity: entries.capacity <= 256)
            head = 0
        } else if head > 1024, head > entries.count / 2 {
            entries.removeFirst(head)
            head = 0
        }
    }

    /// Drops every frame that has not begun. Copies the rest of the frame that has begun into its own memory.
    func dropWhatWasNotBegun(_ arena: PieceArena) {
        var kept: [Entry] = []
        var keptBytes = 0
        var isKeeping = true
        for index in head..<entries.count {
            var entry = entries[index]
            if isKeeping { isKeeping = entry.continues || keptBytes < committed }
            if isKeeping {
                keptBytes += Int(entry.extent.length)
                let copy = arena.retainedCopy(of: entry.extent)
                arena.release(entry.extent.chunk)
                entry.extent = copy
                kept.append(entry)
            } else {
                arena.release(entry.extent.chunk)
            }
        }
        entries = kept
        head = 0
        byteCount = keptBytes
    }

    func removeAll(_ arena: PieceArena) {
        for index in head..<entries.count { arena.release(entries[index].extent.chunk) }
        entries = []
        head = 0
        byteCount = 0
        committed = 0
    }
}
