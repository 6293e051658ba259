import Diagnostics
import System

/// Reader of the sockets of a loop's connections. It also lists the connections whose input the loop examines without a
/// new event.
final class Receiver {
    @safe
    enum Outcome {
        case nothing
        /// Input that the application has not consumed yet, old and new. It stays in place until the receiver's next
        /// call.
        case input(UnsafeMutableRawPointer, count: Int)
        /// The peer has finished sending.
        case finished
        case failed(ConnectionEnd)
    }

    private let connections: Connections
    private let clock: LoopClock
    private let area = ReadArea(byteCount: Limits.socketReadBytes)
    private let again = PlainArray<UInt32>()
    /// Bytes received since the last `takeReceivedBytes()`.
    private var receivedBytes = 0

    init(_ connections: Connections, _ clock: LoopClock) {
        self.connections = connections
        self.clock = clock
    }

    func takeReceivedBytes() -> Int {
        defer { receivedBytes = 0 }
        return receivedBytes
    }

    func receive(_ seat: Int) -> Outcome {
        let table = connections.table
        // The application has not examined the earlier input yet. More input would only accumulate, up to the limit.
        if table[seat].has(.isReadAgain), table[seat].input.count > 0 {
            table[seat].activity.leaveInput()
            return .nothing
        }
        if table[seat].input.isLarge { return receiveBehindInput(seat) }
        // SAFETY: small input is less than the area; it goes before what comes.
        let kept = unsafe table[seat].input.copy(to: area.base)
        return unsafe receive(seat, into: area.room(behind: kept), behind: kept, from: area.base)
    }

    /// Reads new input into the memory directly after the kept input, which is too large to copy.
    private func receiveBehindInput(_ seat: Int) -> Outcome {
        connections.changeInput(seat) { $0.growForMore() }
        let input = connections.table[seat].input
        // SAFETY: the input stays in place until the application has seen it, and the room is a part of it.
        guard let start = unsafe input.start, let room = unsafe input.room else { return .nothing }
        let outcome = unsafe receive(seat, into: room, behind: Int(input.count), from: start)
        if case .input(_, let count) = outcome {
            connections.table[seat].input.append(count - Int(input.count))
        }
        return outcome
    }

    private func receive(
        _ seat: Int, into room: UnsafeMutableRawBufferPointer, behind kept: Int, from start: UnsafeMutableRawPointer
    ) -> Outcome {
        // SAFETY: the room lies in the area or in the input, `kept` bytes behind the start.
        switch unsafe transfer(seat, into: room) {
        case .moved(let count):
            let fillsRoom = count == room.count
            connections.table[seat].activity.receive(at: clock.now, lookedAt: clock.lookedAt, fillsRoom: fillsRoom)
            receivedBytes += count
            return unsafe .input(start, count: kept + count)
        case .wouldBlock: return .nothing
        case .finished: return .finished
        case .failed(let code):
            return .failed(connections.table[seat].session == 0 ? .failed(code: code) : .tlsFailed)
        }
    }

    @inline(__always)
    private func transfer(_ seat: Int, into room: UnsafeMutableRawBufferPointer) -> Transfer {
        // SAFETY: the caller's room outlives the call.
        guard let secured = connections.secured(seat) else {
            return unsafe StreamSocket.receive(connections.table[seat].descriptor, into: room)
        }
        let (transfer, mayHoldMore) = unsafe secured.receive(into: room)
        if mayHoldMore { lookAgain(seat) }
        return transfer
    }

    /// Reads and discards input of a connection. Returns false if the peer will send no more.
    func discard(_ seat: Int) -> Bool {
        // SAFETY: the area outlives the call; nobody looks at the bytes.
        switch unsafe StreamSocket.receive(connections.table[seat].descriptor, into: area.room(behind: 0)) {
        case .moved, .wouldBlock: return true
        case .finished, .failed: return false
        }
    }

    // MARK: Without an event

    /// True if there are connections whose input is examined in the next turn.
    var hasMore: Bool { !again.isEmpty }

    /// Makes the loop examine a connection's input in the next turn, even without an event.
    func lookAgain(_ seat: Int) {
        if connections.table[seat].set(.isReadAgain) { again.append(UInt32(seat)) }
    }

    /// Returns the connections whose input is to be examined now. Connections added after this call wait for the next
    /// turn.
    func takeAgain() -> [Int] {
        guard !again.isEmpty else { return [] }
        defer { again.removeAll() }
        return (0..<again.count).map { Int(again[$0]) }
    }
}

/// Buffer into which the loop reads the input of its connections, one connection after the other.
@safe
final class ReadArea {
    let base: UnsafeMutableRawPointer
    let byteCount: Int

    init(byteCount: Int) {
        // SAFETY: freed in `deinit`.
        unsafe base = .allocate(byteCount: byteCount, alignment: 64)
        self.byteCount = byteCount
    }

    /// Returns the buffer's memory after its first `used` bytes.
    func room(behind used: Int) -> UnsafeMutableRawBufferPointer {
        precondition(used >= 0 && used < byteCount, "what is kept in the area leaves room")
        // SAFETY: `used` is less than the area.
        return unsafe UnsafeMutableRawBufferPointer(start: base + used, count: byteCount - used)
    }

    deinit {
        // SAFETY: this area's own allocation.
        unsafe base.deallocate()
    }
}
