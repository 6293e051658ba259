import Glibc

/// All that a loop keeps of one connection. Most connections wait most of the time, so this is small and plain: what
/// only some need for a while (input that is not complete, output that is blocked, TLS) stands elsewhere.
@safe
struct Connection: BitwiseCopyable {
    enum Stage: UInt8, BitwiseCopyable {
        /// Nobody's; also the state of zeroed memory.
        case free
        case handshaking
        case open
        /// What is queued goes out, nothing more is taken in.
        case closing
        /// We finished sending and wait for the peer to see it.
        case lingering
        /// No socket any more; the application is told at the end of the turn.
        case ended
    }

    struct Flags: OptionSet, BitwiseCopyable {
        let rawValue: UInt8

        /// In the list of those with something queued this turn.
        static let isQueued = Flags(rawValue: 1)
        static let readingIsPaused = Flags(rawValue: 2)
        /// In the list of those whose input is looked at again without a new event.
        static let isReadAgain = Flags(rawValue: 4)
        /// The peer will send nothing more.
        static let peerFinished = Flags(rawValue: 8)
        /// The application knows it.
        static let wasOpened = Flags(rawValue: 16)
        static let hasFallenBehind = Flags(rawValue: 32)
        /// In the list of those that something was queued for since that was asked.
        static let wasSent = Flags(rawValue: 64)
        /// More waits for it than a moment's, which the application was told.
        static let isFilled = Flags(rawValue: 128)
    }

    var descriptor: Int32
    var generation: UInt32
    var stage: Stage
    var flags: Flags
    /// What epoll watches it for now.
    var watched: UInt16
    /// This turn's outbox: first and last link, 0 for none.
    var firstLink: UInt32
    var lastLink: UInt32
    var queuedBytes: UInt32
    /// What it could not take, in the loop's backlogs; 0 for nothing.
    var backlog: UInt32
    /// Its TLS session, in the loop's sessions; 0 for none.
    var session: UInt32
    /// Input that was not consumed.
    var input: UnsafeMutableRawPointer?
    var inputCount: UInt32
    var inputCapacity: UInt32
    /// The application is not asked before there are so many bytes of input.
    var inputWanted: UInt32
    /// What the application keeps of a message that is not whole.
    var held: UInt32
    /// Since when a message is not whole; 0 where there is none.
    var unfinishedSince: UInt64
    /// Who pays for that, among the loop's accounts.
    var account: UInt16
    /// What is read next may have been there when the loop looked last.
    var mayHaveWaited: Bool
    /// 0: it may be idle for ever.
    var idleMilliseconds: UInt32
    var lastReceived: UInt64
    /// Something came from it after that, and had not been there then; 0 for nothing.
    var heardAfter: UInt64
    /// When handshake, closing or lingering have to be done; 0 for never.
    var deadline: UInt64
    /// Why it ends, once that is decided.
    var end: ConnectionEnd

    // Out of line each of these would be handed a copy of all the rest.
    @inline(__always) var isLive: Bool { stage != .free && stage != .ended }
    /// Not so of clients that are only played (`FrameWitness`).
    @inline(__always) var hasSocket: Bool { descriptor >= 0 }
}

/// The connections of one loop, each with a seat: a number that the next one gets when it has gone.
///
/// The whole table is one reservation of zeroed memory: a seat that was never used costs nothing but addresses, and
/// none ever moves.
@safe
final class ConnectionTable {
    private let base: UnsafeMutablePointer<Connection>
    let capacity: Int
    /// Seats from here on were never used.
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

    /// The seat of a connection that is still there.
    @inline(__always)
    func seat(of id: ConnectionID) -> Int? {
        let seat = Int(id.seat)
        guard seat < capacity else { return nil }
        // SAFETY: the seat lies in the table. Only one field is read, of what is most often one cache line.
        return unsafe base[seat].generation == id.generation && base[seat].isLive ? seat : nil
    }

    func id(of seat: Int) -> ConnectionID { ConnectionID(seat: UInt32(seat), generation: self[seat].generation) }

    /// A free seat, with a generation it never had; nil when all are taken.
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
