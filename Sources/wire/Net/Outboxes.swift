import Bytes

/// Output queued in this turn: one list of pieces per connection, and the connections that have a list.
///
/// A list is identified by its first link; link 0 means "none". Lists are valid until `endTurn`. This is a class,
/// because each change of a struct in the loop would cost a check for exclusive access, twice per delivery.
final class Outboxes {
    /// Piece queued for one connection in this turn, linked to the next one.
    private struct Link: BitwiseCopyable {
        var piece: UInt32
        var next: UInt32
        var continues: Bool
    }

    let arena = PieceArena()
    private let links = PlainArray<Link>(capacity: 1024)
    private let queued = PlainArray<UInt32>(capacity: 1024)
    private var nextQueued = 0
    /// Seats for which output was queued since the last `takeSent`, once `recordSent` has started the recording.
    private let sentSeats = PlainArray<UInt32>()
    private var recordsSent = false
    /// Largest number of bytes that this turn has queued for one connection.
    private(set) var largestBytes = 0

    init() { links.append(Link(piece: 0, next: 0, continues: false)) }

    // MARK: Queueing

    @inline(__always)
    func queue(_ piece: UInt32, for seat: Int, _ connection: inout Connection, continues: Bool) {
        let link = UInt32(links.count)
        links.append(Link(piece: piece, next: 0, continues: continues))
        let last = connection.outbox.append(link, byteCount: arena.extent(of: piece).length)
        if last != 0 { links[Int(last)].next = link }
        largestBytes = max(largestBytes, Int(connection.outbox.byteCount))
        putInQueue(seat, &connection)
    }

    /// Puts a connection into the queue of connections that the next flush handles.
    @inline(__always)
    func putInQueue(_ seat: Int, _ connection: inout Connection) {
        if connection.set(.isQueued) { queued.append(UInt32(seat)) }
        // `takeSent` may already have returned a connection that is still queued. It must return that connection again.
        guard connection.set(.wasSent), recordsSent else { return }
        sentSeats.append(UInt32(seat))
    }

    var isEmpty: Bool { queued.isEmpty }

    /// Returns the seat of the next connection to flush, including those queued during the flush; nil at the end.
    @inline(__always)
    func takeNext() -> Int? {
        guard nextQueued < queued.count else { return nil }
        defer { nextQueued += 1 }
        return Int(queued[nextQueued])
    }

    /// Empties the queue after a flush.
    func finishFlush() {
        queued.removeAll(keeping: 1 << 20)
        nextQueued = 0
    }

    /// Invalidates all lists and pieces. Returns the number of pieces that were queued.
    func endTurn() -> Int {
        defer { links.append(Link(piece: 0, next: 0, continues: false)) }
        let count = links.count - 1
        links.removeAll(keeping: 1 << 20)
        largestBytes = 0
        arena.endTurn()
        return count
    }

    /// Starts to record the connections for which output is queued. The record begins with all connections that were
    /// sent something before.
    func recordSent(_ table: ConnectionTable) {
        guard !recordsSent else { return }
        recordsSent = true
        for seat in 0..<table.highWater where table[seat].has(.wasSent) { sentSeats.append(UInt32(seat)) }
    }

    /// Returns the connections for which output was queued since the last call.
    func takeSent(_ table: ConnectionTable) -> [ConnectionID] {
        assert(recordsSent, "what is taken is recorded")
        defer { sentSeats.removeAll(keeping: 1 << 16) }
        return (0..<sentSeats.count).compactMap { index in
            let seat = Int(sentSeats[index])
            table[seat].clear(.wasSent)
            // Includes an ended connection whose end the application does not know yet: it may not have received its
            // output.
            return table[seat].stage != .free ? table.id(of: seat) : nil
        }
    }

    // MARK: Lists

    /// True if both lists (given by their first links) have the same pieces.
    func areEqual(_ left: UInt32, _ right: UInt32) -> Bool {
        var (left, right) = (left, right)
        while left != 0, right != 0 {
            let (one, other) = (links[Int(left)], links[Int(right)])
            if one.piece != other.piece { return false }
            left = one.next
            right = other.next
        }
        return left == right
    }

    /// Adds pieces of a list to a batch until the batch is full. Returns the link with which the next batch begins; 0
    /// at the end of the list.
    func fill(_ batch: Gather, from start: UInt32) -> UInt32 {
        var link = start
        while link != 0 {
            let entry = links[Int(link)]
            let extent = arena.extent(of: entry.piece)
            // SAFETY: the extent's bytes stay where they are until the turn ends.
            guard unsafe batch.add(arena.address(of: extent), Int(extent.length)) else { break }
            link = entry.next
        }
        batch.finish()
        return link
    }

    /// Moves a list of pieces to a backlog, which then retains their memory. Leaves out the first `sent` bytes.
    func move(_ first: UInt32, skipping sent: Int, to backlog: Backlog) {
        var link = first
        var skip = sent
        while link != 0 {
            let entry = links[Int(link)]
            link = entry.next
            var extent = arena.extent(of: entry.piece)
            if skip >= Int(extent.length) {
                skip -= Int(extent.length)
                continue
            }
            extent.offset += UInt32(skip)
            extent.length -= UInt32(skip)
            arena.retain(extent.chunk)
            backlog.append(.init(extent: extent, continues: entry.continues || skip > 0))
            skip = 0
        }
    }

    /// Copies a list to a TLS record, from an offset in the list's first piece on, until the record is full. Returns
    /// the record.
    func record(from start: UInt32, _ offset: Int, in area: RecordArea) -> UnsafeRawBufferPointer {
        area.begin()
        var link = start
        var skipped = offset
        while link != 0 {
            let extent = arena.extent(of: links[Int(link)].piece)
            // SAFETY: `skipped` is less than the extent's length, all of which is a piece of this turn.
            let rest = unsafe UnsafeRawBufferPointer(
                start: arena.address(of: extent) + skipped, count: Int(extent.length) - skipped)
            if let whole = unsafe area.add(rest) { return unsafe whole }
            skipped = 0
            link = links[Int(link)].next
        }
        return unsafe area.bytes
    }

    /// Advances a position in a list, given as a link and an offset in that link's piece, by `count` sent bytes.
    func skip(_ link: inout UInt32, _ offset: inout Int, _ count: Int) {
        offset += count
        while link != 0 {
            let length = Int(arena.extent(of: links[Int(link)].piece).length)
            guard offset >= length else { return }
            offset -= length
            link = links[Int(link)].next
        }
    }

    /// Returns a copy of a list's bytes.
    func bytes(of list: UInt32) -> ByteWriter {
        var bytes = ByteWriter()
        var link = list
        while link != 0 {
            let extent = arena.extent(of: links[Int(link)].piece)
            // SAFETY: the piece is of this turn, so its bytes are there.
            let piece = unsafe UnsafeRawBufferPointer(start: arena.address(of: extent), count: Int(extent.length))
            unsafe bytes.append(piece.bytes)
            link = links[Int(link)].next
        }
        return bytes
    }

    func frameCount(of list: UInt32) -> Int {
        var frames = 0
        var link = list
        while link != 0 {
            if !links[Int(link)].continues { frames += 1 }
            link = links[Int(link)].next
        }
        return frames
    }
}
