import Glibc

/// Connections of one loop. Each has a seat: an index in the table, reused after the connection has ended.
///
/// The whole table is one reservation of zeroed memory. A seat that was never used costs only address space, and no
/// seat ever moves.
@safe
final class ConnectionTable {
    private let base: UnsafeMutablePointer<Connection>
    let capacity: Int
    /// Number of seats that were ever used. All seats from this index on are still zeroed memory.
    private(set) var highWater = 0
    private let freed = PlainArray<UInt32>()
    private(set) var count = 0

    init(capacity: Int) {
        precondition(capacity > 0 && capacity < Int(UInt32.max), "seats are numbered with 32 bits")
        // SAFETY: zeroed memory is a valid `Connection`, whose every field is plain and whose stage 0 is `free`.
        guard let memory = unsafe calloc(capacity, MemoryLayout<Connection>.stride) else {
            preconditionFailure("no memory for the table of connections")
        }
        unsafe base = memory.bindMemory(to: Connection.self, capacity: capacity)
        self.capacity = capacity
    }

    deinit {
        // SAFETY: this table's own memory; its elements are plain.
        unsafe free(base)
    }

    subscript(_ seat: Int) -> Connection {
        @inline(__always) get {
            precondition(seat >= 0 && seat < capacity, "a seat lies in the table")
            // SAFETY: the seat lies in the table, all of which is initialised.
            return unsafe base[seat]
        }
        @inline(__always) _modify {
            precondition(seat >= 0 && seat < capacity, "a seat lies in the table")
            // SAFETY: as above.
            yield unsafe &base[seat]
        }
    }

    /// Returns the seat of a connection; nil if the connection has ended.
    @inline(__always)
    func seat(of id: ConnectionID) -> Int? {
        let seat = Int(id.seat)
        guard seat < capacity else { return nil }
        // SAFETY: the seat lies in the table. Only one field is read, of what is most often one cache line.
        return unsafe base[seat].generation == id.generation && base[seat].isLive ? seat : nil
    }

    func id(of seat: Int) -> ConnectionID { ConnectionID(seat: UInt32(seat), generation: self[seat].generation) }

    /// Takes a free seat and gives it a generation that it never had before. Returns nil if no seat is free.
    func take(descriptor: Int32, stage: Connection.Stage, now: UInt64) -> Int? {
        let seat: Int
        if let reused = freed.popLast() {
            seat = Int(reused)
        } else {
            guard highWater < capacity else { return nil }
            seat = highWater
            highWater += 1
        }
        self[seat] = Connection(
            descriptor: descriptor, generation: self[seat].generation &+ 1, stage: stage, now: now)
        count += 1
        return seat
    }

    func giveBack(_ seat: Int) {
        self[seat].giveUpSeat()
        freed.append(UInt32(seat))
        count -= 1
    }
}
