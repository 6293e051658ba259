/// What one blocked connection has not taken yet, in order. Its bytes stay in the arena's chunks, which it retains.
final class Backlog {
    struct Entry {
        var extent: PieceArena.Extent
        /// Belongs to the frame of the entry before it.
        var continues: Bool
    }

    /// A plain ring would do; entries come in batches and go in batches, so an array with a head is one too.
    private var entries: [Entry] = []
    private var head = 0
    private(set) var byteCount = 0
    /// Bytes at the front that TLS has taken into a record already: they have to be offered again as they are.
    var committed = 0
    /// When the connection took something last.
    var takenAt: UInt64 = 0
    /// The seat that it belongs to; nil while it waits for the next.
    var seat: Int?

    var isEmpty: Bool { head == entries.count }
    var count: Int { entries.count - head }
    subscript(_ index: Int) -> Entry { entries[head + index] }

    /// The caller has retained the extent's chunk.
    func append(_ entry: Entry) {
        entries.append(entry)
        byteCount += Int(entry.extent.length)
    }

    /// Takes bytes that were sent off the front and lets go of their chunks.
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
                // The rest of a frame under way.
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

    /// Drops every frame that was not begun, and keeps what is left of the one under way in memory of its own.
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
