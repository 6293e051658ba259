/// Output that one blocked connection has not taken yet, in order. The bytes stay in chunks of the arena, which the
/// backlog retains.
final class Backlog {
    struct Entry {
        var extent: PieceArena.Extent
        /// True if the entry belongs to the same frame as the entry queued before it.
        var continues: Bool
    }

    /// Queue of pieces of output: those from index `head` on are still to be sent. Batches of entries are added and
    /// removed, so an array is enough.
    private var entries: [Entry] = []
    /// Index in `entries` of the first entry that is still to be sent.
    private var head = 0
    /// Number of bytes that the entries hold together.
    private(set) var byteCount = 0
    /// Number of bytes at the front that TLS has already put into a record. They must be offered to OpenSSL again
    /// unchanged.
    private var committed = 0
    /// Monotonic time, in nanoseconds, at which the connection last took bytes.
    private(set) var takenAt: UInt64 = 0
    /// Seat of the connection: its index in the loop's table. Nil while no connection uses the backlog.
    private(set) var seat: Int?

    var isEmpty: Bool { head == entries.count }
    var count: Int { entries.count - head }
    subscript(_ index: Int) -> Entry { entries[head + index] }

    /// Starts an empty backlog for a connection. TLS has already put `committed` bytes of the connection's output into
    /// a record.
    func start(seat: Int, committed: Int, at now: UInt64) {
        self.seat = seat
        self.committed = committed
        takenAt = now
    }

    /// Appends an entry to the queue. The caller has retained its chunk.
    func append(_ entry: Entry) {
        entries.append(entry)
        byteCount += Int(entry.extent.length)
    }

    /// Records the time (monotonic, in nanoseconds) at which the connection took bytes.
    func take(at now: UInt64) { takenAt = now }

    /// Records that TLS has put the first `bytes` bytes of the queue into a record.
    func commit(_ bytes: Int) { committed = max(committed, bytes) }

    /// Removes the first `sent` bytes, which were sent, and releases their chunks.
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

    /// Drops every frame of which no byte was sent. Copies the rest of a partly sent frame into memory of its own.
    func dropUnsentFrames(_ arena: PieceArena) {
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

    /// Releases all chunks and detaches the connection. Another connection may use the backlog afterwards.
    func end(_ arena: PieceArena) {
        for index in head..<entries.count { arena.release(entries[index].extent.chunk) }
        entries = []
        head = 0
        byteCount = 0
        committed = 0
        seat = nil
    }

    // MARK: The bytes to send next

    /// Approximate number of bytes that a socket, after it was full, takes in one call.
    private static let resumeBytes = 256 << 10

    /// Gathers the next bytes of the queue into `batch`, about as many as a socket takes in one call.
    func fill(_ batch: Gather, _ arena: PieceArena) {
        batch.reset()
        for index in head..<entries.count {
            let extent = entries[index].extent
            guard batch.byteCount < Self.resumeBytes else { break }
            // SAFETY: the backlog retains the extent's chunk until `advance`.
            guard unsafe batch.add(arena.address(of: extent), Int(extent.length)) else { break }
        }
        batch.finish()
    }

    /// Returns the next TLS record, made from the bytes at the front of the queue. Removes nothing from the queue.
    func record(in area: RecordArea, _ arena: PieceArena) -> UnsafeRawBufferPointer {
        area.begin()
        for index in head..<entries.count {
            let extent = entries[index].extent
            // SAFETY: the backlog retains the extent's chunk.
            let bytes = unsafe UnsafeRawBufferPointer(start: arena.address(of: extent), count: Int(extent.length))
            if let whole = unsafe area.add(bytes) { return unsafe whole }
        }
        return unsafe area.bytes
    }
}
