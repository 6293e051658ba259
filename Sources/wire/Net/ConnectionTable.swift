import Glibc

/// Record of one connection in its loop. It is small and plain, because most connections wait most of the time. Data
/// that only some need for a while (incomplete input, blocked output, TLS) is stored elsewhere.
@safe
struct Connection: BitwiseCopyable {
    enum Stage: UInt8, BitwiseCopyable {
        /// The seat is free. Zeroed memory also has this stage.
        case free
        case handshaking
        case open
        /// Queued output is still sent; input is no longer read.
        case closing
        /// The loop has finished sending and waits until the peer has seen it.
        case lingering
        /// The socket is closed. The loop tells the application at the end of the turn.
        case ended
    }

    struct Flags: OptionSet, BitwiseCopyable {
        let rawValue: UInt8

        /// The connection is in the list of connections with output queued in this turn.
        static let isQueued = Flags(rawValue: 1)
        static let readingIsPaused = Flags(rawValue: 2)
        /// The connection is in the list of connections whose input is examined again without a new event.
        static let isReadAgain = Flags(rawValue: 4)
        /// The peer has finished sending.
        static let peerFinished = Flags(rawValue: 8)
        /// The application has been told of the connection.
        static let wasOpened = Flags(rawValue: 16)
        static let hasFallenBehind = Flags(rawValue: 32)
        /// The connection is in the list of those with output queued since the last `takeSent()`.
        static let wasSent = Flags(rawValue: 64)
        /// The backlog has exceeded `filledBytes` and has not been emptied since.
        static let isFilled = Flags(rawValue: 128)
    }

    var descriptor: Int32
    var generation: UInt32
    var stage: Stage
    var flags: Flags
    /// Events for which epoll watches the connection.
    var watched: UInt16
    /// Outbox of this turn: first and last link, 0 for none.
    var firstLink: UInt32
    var lastLink: UInt32
    var queuedBytes: UInt32
    /// Index of the blocked output in the loop's backlogs; 0 for none.
    var backlog: UInt32
    /// Index of the TLS session in the loop's sessions; 0 for none.
    var session: UInt32
    /// Input that the application has not consumed.
    var input: UnsafeMutableRawPointer?
    var inputCount: UInt32
    var inputCapacity: UInt32
    /// Number of input bytes below which the loop does not call the application.
    var inputWanted: UInt32
    /// Bytes that the application holds of an incomplete message.
    var held: UInt32
    /// Time since when a message is incomplete; 0 if none is.
    var unfinishedSince: UInt64
    /// Index, among the loop's accounts, of the budget that pays for the incomplete message.
    var account: UInt16
    /// True if the next bytes that are read may have arrived before the loop last looked.
    var mayHaveWaited: Bool
    /// Idle limit; 0 for none.
    var idleMilliseconds: UInt32
    var lastReceived: UInt64
    /// Latest time after which the peer certainly sent something that the loop has read; 0 if unknown.
    var heardAfter: UInt64
    /// Time at which handshake, closing or lingering must be done; 0 for never.
    var deadline: UInt64
    /// Reason of the end, once it is decided.
    var end: ConnectionEnd

    // Inlined, because a call would copy the whole record.
    @inline(__always) var isLive: Bool { stage != .free && stage != .ended }
    /// True if the connection has a socket. Simulated clients have none (`FrameWitness`).
    @inline(__always) var hasSocket: Bool { descriptor >= 0 }
}

/// Connections of one loop. Each has a seat: an index that is reused after the connection has ended.
///
/// The whole table is one reservation of zeroed memory. A seat that was never used costs only address space, and no
/// seat ever moves.
@safe
final class ConnectionTable {
    private let base: UnsafeMutablePointer<Connection>
    let capacity: Int
    /// First of the seats that were never used.
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

    /// Returns the seat of a connection that still exists.
    @inline(__always)
    func seat(of id: ConnectionID) -> Int? {
        let seat = Int(id.seat)
        guard seat < capacity else { return nil }
        // SAFETY: the seat lies in the table. Only one field is read, of what is most often one cache line.
        return unsafe base[seat].generation == id.generation && base[seat].isLive ? seat : nil
    }

    func id(of seat: Int) -> ConnectionID { ConnectionID(seat: UInt32(seat), generation: self[seat].generation) }

    /// Takes a free seat, with a generation that the seat never had before; nil if all are taken.
    func take(descriptor: Int32, stage: Connection.Stage, now: UInt64) -> Int? {
        let seat: Int
        if let reused = freed.popLast() {
            seat = Int(reused)
        } else {
            guard highWater < capacity else { return nil }
            seat = highWater
            highWater += 1
        }
        let generation = self[seat].generation &+ 1
        // SAFETY: all fields are plain; null is no input.
        unsafe self[seat] = Connection(
            descriptor: descriptor, generation: generation, stage: stage, flags: [], watched: 0, firstLink: 0,
            lastLink: 0, queuedBytes: 0, backlog: 0, session: 0, input: nil, inputCount: 0, inputCapacity: 0,
            inputWanted: 0, held: 0, unfinishedSince: 0, account: 0, mayHaveWaited: false, idleMilliseconds: 0,
            lastReceived: now, heardAfter: 0, deadline: 0, end: .stopped)
        count += 1
        return seat
    }

    func giveBack(_ seat: Int) {
        precondition(self[seat].stage == .ended, "only an ended connection's seat is free")
        self[seat].stage = .free
        freed.append(UInt32(seat))
        count -= 1
    }
}
