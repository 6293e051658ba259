import Bytes

/// Stored form of the deliveries of one socket loop: which channels received each change, and when. The ledger contains
/// such blocks if the hub records each delivery.
///
/// ```
/// block   = number of regions varint · region* · number of channels varint · channel* · turn*
/// region  = difference to the region before, zigzag; a region of the log has 4096 offsets
/// channel = difference of the session's number, rotated so that its loop is at the top, zigzag
///           · the channel's number varint
/// turn    = microseconds since the turn before varint · number of changes varint · change*
/// change  = difference of the offset zigzag · number of deliveries varint · stretch*
/// stretch = (zigzag difference of the first channel's place to the place after the last stretch << 1 | is long) varint
///           · if it is long, the number of further channels varint
/// ```
///
/// Channels have places in the order of their first delivery in the block. A change for the same channels as the change
/// before needs only a few bytes, even if the channels are many.
public enum DeliveryBlock {
    public static let regionBits: UInt64 = 12

    public static func region(of offset: UInt64) -> UInt64 { offset >> regionBits }

    private static let loopBits = UInt64(LedgerNote.loopBits.nonzeroBitCount)

    /// Rotates the loop's number from the lowest bits to the highest. All sessions of a block have the same loop.
    fileprivate static func turned(_ session: UInt64) -> UInt64 { session >> loopBits | session << (64 - loopBits) }
    private static func turnedBack(_ session: UInt64) -> UInt64 { session << loopBits | session >> (64 - loopBits) }

    /// Delivery of a change to a channel.
    public struct Delivery: Sendable, Equatable {
        public var offset: UInt64
        /// Time at which the loop's turn ended and its sockets had received the bytes, in microseconds since 1970, UTC.
        public var time: Int64
        public var session: UInt64
        public var channel: UInt32
    }

    /// Returns the regions of the log whose changes the block contains; empty if the block is malformed.
    public static func regions(of block: [UInt8]) -> [UInt64] {
        var reader = ByteReader(block.rawBytes)
        return (try? regions(&reader)) ?? []
    }

    @_lifetime(reader: copy reader)
    private static func regions(_ reader: inout ByteReader) throws(ByteError) -> [UInt64] {
        var regions: [UInt64] = []
        for _ in 0..<(try reader.varint()) {
            regions.append((regions.last ?? 0) &+ UInt64(bitPattern: try reader.zigzag()))
        }
        return regions
    }

    /// Calls `visit` with each delivery, in the order in which the deliveries were made.
    ///
    /// - Parameter wants: returns true for the offset of a change whose deliveries are to be visited.
    public static func read(
        _ block: RawSpan, from time: Int64, of wants: (UInt64) -> Bool = { _ in true }, _ visit: (Delivery) -> Void
    ) throws(ByteError) {
        var reader = ByteReader(block)
        _ = try regions(&reader)
        var channels: [(session: UInt64, channel: UInt32)] = []
        var turned: UInt64 = 0
        for _ in 0..<(try reader.varint()) {
            turned &+= UInt64(bitPattern: try reader.zigzag())
            channels.append((turnedBack(turned), UInt32(truncatingIfNeeded: try reader.varint())))
        }
        var (offset, time) = (UInt64(0), time)
        while !reader.isAtEnd {
            time &+= Int64(bitPattern: try reader.varint())
            for _ in 0..<(try reader.varint()) {
                offset &+= UInt64(bitPattern: try reader.zigzag())
                try readChange(&reader, offset, time, channels, isWanted: wants(offset), visit)
            }
        }
    }

    @_lifetime(reader: copy reader)
    private static func readChange(
        _ reader: inout ByteReader, _ offset: UInt64, _ time: Int64, _ channels: [(session: UInt64, channel: UInt32)],
        isWanted: Bool, _ visit: (Delivery) -> Void
    ) throws(ByteError) {
        var left = try reader.varint()
        var next: Int64 = 0
        while left > 0 {
            let stretch = try reader.varint()
            let difference = Int64(bitPattern: stretch >> 2) ^ -Int64(bitPattern: stretch >> 1 & 1)
            let more = stretch & 1 == 1 ? try reader.varint() : 0
            let first = next &+ difference
            guard first >= 0, more < left, more < channels.count, first < Int64(channels.count) - Int64(more) else {
                throw ByteError(expected: "a channel that the block names", offset: reader.offset)
            }
            next = first + Int64(more) + 1
            left -= more + 1
            guard isWanted else { continue }
            for place in Int(first)..<Int(next) {
                visit(
                    Delivery(
                        offset: offset, time: time, session: channels[place].session,
                        channel: channels[place].channel))
            }
        }
    }
}

/// Writer of delivery blocks. Each channel has a seat, a small number. Recording a delivery appends the seat to an
/// array; writing the block looks up the seat's channel.
public struct DeliveryBlockWriter: ~Copyable {
    private struct Seat {
        var session: UInt64
        var channel: UInt32
        /// Index (place) of the channel in the list of channels of the block whose number is `block`.
        var place: UInt32 = 0
        var block: UInt64 = 0
    }

    private var seats: [Seat] = []
    private var free: [UInt32] = []
    /// Number of the current block.
    private var block: UInt64 = 1
    private var regions: [UInt64] = []
    private var channels = ByteWriter(capacity: 0)
    private var channelCount: UInt32 = 0
    private var lastSession: UInt64 = 0
    private var turns = ByteWriter(capacity: 0)
    private var lastOffset: UInt64 = 0
    private var lastTime: Int64 = 0
    /// Start of the current block, in microseconds since 1970.
    public private(set) var began: Int64 = 0
    /// First and last offset of the changes whose deliveries the current block contains.
    public private(set) var offsets: ClosedRange<UInt64> = 0...0

    public init() {}

    public var isEmpty: Bool { turns.isEmpty }
    public var byteCount: Int { turns.count + channels.count }
    /// True if the names of channels are at least half of the block. Then it is cheaper to continue the block than to
    /// name the channels again in a new one.
    public var isMostlyNames: Bool { channels.count >= turns.count }

    // MARK: Seats

    public mutating func seat(session: UInt64, channel: UInt32) -> UInt32 {
        let seat = Seat(session: session, channel: channel)
        if let known = free.popLast() {
            seats[Int(known)] = seat
            return known
        }
        seats.append(seat)
        return UInt32(seats.count - 1)
    }

    /// Frees the seat of a channel that has ended. Its deliveries must have been written.
    public mutating func leave(_ seat: UInt32) {
        precondition(Int(seat) < seats.count, "only who has a seat leaves it")
        free.append(seat)
    }

    // MARK: Deliveries

    /// Begins a turn of the loop that ended at `time`. The caller then appends the deliveries of `changes` changes.
    public mutating func beginTurn(at time: Int64, changes: Int) {
        if isEmpty { (began, lastTime) = (time, time) }
        // The clock may have been set back.
        turns.append(varint: UInt64(max(0, time - lastTime)))
        turns.append(varint: UInt64(changes))
        lastTime = max(time, lastTime)
    }

    /// Appends a change, and the seats of the channels that received it.
    public mutating func append(_ offset: UInt64, to members: Span<UInt32>) {
        offsets = regions.isEmpty ? offset...offset : min(offsets.lowerBound, offset)...max(offsets.upperBound, offset)
        let region = DeliveryBlock.region(of: offset)
        if regions.last != region, !regions.contains(region) { regions.append(region) }
        turns.append(zigzag: Int64(bitPattern: offset &- lastOffset))
        lastOffset = offset
        turns.append(varint: UInt64(members.count))
        var next: Int64 = 0
        var at = 0
        while at < members.count {
            let first = place(of: members[at])
            var end = first + 1
            at += 1
            while at < members.count, place(of: members[at]) == end {
                end += 1
                at += 1
            }
            let difference = Int64(first) - next
            let isLong: UInt64 = end - first > 1 ? 1 : 0
            turns.append(varint: UInt64(bitPattern: difference << 1 ^ difference >> 63) << 1 | isLong)
            if isLong == 1 { turns.append(varint: UInt64(end - first - 1)) }
            next = Int64(end)
        }
    }

    private mutating func place(of seat: UInt32) -> UInt32 {
        let known = seats[Int(seat)]
        if known.block == block { return known.place }
        let turned = DeliveryBlock.turned(known.session)
        channels.append(zigzag: Int64(bitPattern: turned &- lastSession))
        channels.append(varint: UInt64(known.channel))
        lastSession = turned
        seats[Int(seat)].block = block
        seats[Int(seat)].place = channelCount
        channelCount += 1
        return channelCount - 1
    }

    /// Returns the block written since the last call, and begins a new one.
    public mutating func take() -> [UInt8] {
        var whole = ByteWriter(capacity: byteCount + 64)
        whole.append(varint: UInt64(regions.count))
        var last: UInt64 = 0
        for region in regions {
            whole.append(zigzag: Int64(bitPattern: region &- last))
            last = region
        }
        whole.append(varint: UInt64(channelCount))
        whole.append(channels.bytes)
        whole.append(turns.bytes)
        block += 1
        regions.removeAll(keepingCapacity: true)
        channels.removeAll()
        turns.removeAll()
        (channelCount, lastSession, lastOffset, lastTime) = (0, 0, 0, 0)
        return whole.copied()
    }
}
