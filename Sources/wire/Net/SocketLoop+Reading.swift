import Diagnostics
import Glibc
import System

/// What comes in: read into the shared buffer, shown in place, kept only when the application wants more of it first.
extension SocketLoop {
    func handle(_ events: Epoll.Events, _ seat: Int) {
        switch table[seat].stage {
        case .open:
            if events.contains(.writable), table[seat].backlog != 0 { resume(seat) }
            guard table[seat].stage == .open else { return }
            if table[seat].flags.contains(.readingIsPaused) {
                if !events.isDisjoint(with: [.failed, .hungUp]) { endBroken(seat) }
            } else if !events.isDisjoint(with: [.readable, .peerFinished, .failed, .hungUp]) {
                read(seat)
            }
        case .closing:
            if !events.isDisjoint(with: [.failed, .hungUp]) { return endBroken(seat) }
            if events.contains(.writable) { resume(seat) }
        case .lingering: readToEnd(seat)
        case .handshaking: continueHandshake(seat)
        case .free, .ended: break
        }
    }

    func endBroken(_ seat: Int) {
        tellStopsTaking(seat)
        let code = StreamSocket.pendingFailure(of: table[seat].descriptor)
        end(seat, code == 0 ? .byPeer : .failed(code: code), byReset: true)
    }

    /// Between two turns of the application: what it has sent is with the kernel, or queued.
    private func tellStopsTaking(_ seat: Int) {
        guard table[seat].stage == .open, table[seat].flags.contains(.wasOpened) else { return }
        application.stopsTaking(table.id(of: seat))
    }

    // MARK: Reading

    private func read(_ seat: Int) {
        // The application has yet to look at what there is: more would only pile up before it, up to the limit.
        if table[seat].flags.contains(.isReadAgain), table[seat].inputCount > 0 {
            table[seat].mayHaveWaited = true
            return
        }
        if table[seat].inputCount > UInt32(smallInput) { return readMore(seat) }
        // SAFETY: `smallInput` is less than the area; what was kept goes before what comes.
        let kept = Int(table[seat].inputCount)
        if kept > 0, let input = unsafe table[seat].input {
            unsafe readBuffer.base.copyMemory(from: input, byteCount: kept)
        }
        let room = unsafe UnsafeMutableRawBufferPointer(
            start: readBuffer.base + kept, count: readBuffer.byteCount - kept)
        guard let count = unsafe receive(seat, into: room) else { return }
        unsafe show(seat, readBuffer.base, kept + count)
    }

    /// Input up to this is copied before what follows it, so that a client that sends drop by drop costs little memory.
    private var smallInput: Int { 4096 }

    /// Large input grows where it is: copying it for each read would cost its square.
    private func readMore(_ seat: Int) {
        let kept = Int(table[seat].inputCount)
        reserveInput(seat, kept + min(max(kept, 16 << 10), Limits.inputGrowthBytes))
        // SAFETY: the input's memory is `inputCapacity` long, of which `kept` are filled.
        guard let input = unsafe table[seat].input else { return }
        let room = unsafe UnsafeMutableRawBufferPointer(
            start: input + kept, count: Int(table[seat].inputCapacity) - kept)
        guard let count = unsafe receive(seat, into: room) else { return }
        table[seat].inputCount += UInt32(count)
        unsafe show(seat, input, kept + count)
    }

    /// How many bytes came; nil when none did, and whatever that means has been done.
    private func receive(_ seat: Int, into room: UnsafeMutableRawBufferPointer) -> Int? {
        // SAFETY: the caller's room outlives the call.
        switch unsafe transfer(seat, into: room) {
        case .moved(let count):
            table[seat].lastReceived = now
            if !table[seat].mayHaveWaited { table[seat].heardAfter = lookedAt }
            table[seat].mayHaveWaited = count == room.count
            receivedBytes += count
            return count
        case .wouldBlock: return nil
        case .finished:
            peerFinished(seat)
            return nil
        case .failed(let code):
            tellStopsTaking(seat)
            end(seat, table[seat].session == 0 ? .failed(code: code) : .tlsFailed, byReset: true)
            return nil
        }
    }

    @inline(__always)
    private func transfer(_ seat: Int, into room: UnsafeMutableRawBufferPointer) -> Transfer {
        // SAFETY: the caller's room outlives the call.
        if let secured = secured(seat) { return unsafe receiveSecurely(seat, secured.session, into: room) }
        return unsafe StreamSocket.receive(table[seat].descriptor, into: room)
    }

    /// Shows the application all there is, and keeps what it leaves.
    private func show(_ seat: Int, _ start: UnsafeMutableRawPointer, _ count: Int) {
        guard count >= Int(table[seat].inputWanted) else { return unsafe keep(seat, start, count, from: 0) }
        table[seat].inputWanted = 0
        let generation = table[seat].generation
        // SAFETY: `count` bytes from `start` on are initialised. The memory stays as long as the call: a connection that
        // ends during it keeps its input until the end of the turn.
        var bytes = unsafe MutableRawSpan(_unsafeStart: start, byteCount: count)
        let consumed = application.received(table.id(of: seat), &bytes)
        precondition(consumed >= 0 && consumed <= count, "an application consumes what it was shown")
        guard table[seat].generation == generation, table[seat].stage == .open else { return }
        // What is left was begun just now, unless the application has some of it, too.
        if consumed > 0, table[seat].held == 0 { table[seat].unfinishedSince = 0 }
        unsafe keep(seat, start, count, from: consumed)
    }

    // MARK: What is left

    private func keep(_ seat: Int, _ start: UnsafeMutableRawPointer, _ count: Int, from consumed: Int) {
        let left = count - consumed
        if left == 0 { return forgetInput(seat) }
        guard left < settings.receiveBytes else { return end(seat, .inputTooLong, byReset: true) }
        // SAFETY: `left` bytes lie behind what was consumed; memmove allows for moving within the input itself.
        if unsafe table[seat].input == start {
            if consumed > 0 { unsafe memmove(start, start + consumed, left) }
            shrinkInput(seat, left)
        } else {
            table[seat].inputCount = 0
            reserveInput(seat, left)
            if let input = unsafe table[seat].input { unsafe memcpy(input, start + consumed, left) }
        }
        table[seat].inputCount = UInt32(left)
        noteHeld(seat, before: heldInput(seat))
    }

    /// Makes the input's memory at least this long.
    private func reserveInput(_ seat: Int, _ wanted: Int) {
        guard wanted > Int(table[seat].inputCapacity) else { return }
        let capacity = (wanted + 63) & ~63
        resizeInput(seat, capacity)
    }

    private func shrinkInput(_ seat: Int, _ left: Int) {
        let capacity = Int(table[seat].inputCapacity)
        if capacity > 64 << 10, left < capacity / 8 { resizeInput(seat, max((left + 63) & ~63, 64)) }
    }

    private func resizeInput(_ seat: Int, _ capacity: Int) {
        let before = heldInput(seat)
        defer { noteHeld(seat, before: before) }
        // SAFETY: realloc moves what was kept; the old address is replaced at once.
        guard let moved = unsafe realloc(table[seat].input, capacity) else {
            preconditionFailure("no memory for input")
        }
        unsafe table[seat].input = moved
        table[seat].inputCapacity = UInt32(capacity)
    }

    func forgetInput(_ seat: Int) {
        guard let input = unsafe table[seat].input else { return }
        let before = heldInput(seat)
        // SAFETY: the input's own memory, forgotten at once.
        unsafe free(input)
        unsafe table[seat].input = nil
        table[seat].inputCount = 0
        table[seat].inputCapacity = 0
        noteHeld(seat, before: before)
    }

    // MARK: The end of input

    /// What it asked for before it finished is still sent.
    private func peerFinished(_ seat: Int) {
        table[seat].flags.insert(.peerFinished)
        tellStopsTaking(seat)
        startClosing(seat, .byPeer, within: Limits.farewellLimit.nanoseconds)
    }

    /// Until the peer has seen our end: closing with bytes unread would make the kernel take back what was sent.
    private func readToEnd(_ seat: Int) {
        // SAFETY: the area outlives the call; nobody looks at the bytes.
        let room = unsafe UnsafeMutableRawBufferPointer(start: readBuffer.base, count: readBuffer.byteCount)
        switch unsafe StreamSocket.receive(table[seat].descriptor, into: room) {
        case .moved, .wouldBlock: break
        case .finished, .failed: end(seat, table[seat].end, byReset: false)
        }
    }

    // MARK: Pausing

    /// Nothing more is read from it until `resumeReading`; the peer feels it when the kernel's buffers are full.
    public func pauseReading(_ connection: ConnectionID) {
        guard let seat = table.seat(of: connection), table[seat].stage == .open else { return }
        table[seat].flags.insert(.readingIsPaused)
        table[seat].mayHaveWaited = true
        watch(seat)
    }

    /// Reads on. What was left unconsumed is shown again, even if nothing comes. False where reading was not paused.
    @discardableResult
    public func resumeReading(_ connection: ConnectionID) -> Bool {
        guard let seat = table.seat(of: connection), table[seat].flags.contains(.readingIsPaused) else { return false }
        table[seat].flags.remove(.readingIsPaused)
        watch(seat)
        // It waited for us, and not we for it.
        table[seat].unfinishedSince = 0
        if table[seat].inputCount > 0 { readAgain(seat) }
        return true
    }

    /// Do not call `received` before there are this many bytes, or the receive limit is reached.
    public func awaitBytes(_ count: Int, for connection: ConnectionID) {
        guard let seat = table.seat(of: connection) else { return }
        table[seat].inputWanted = UInt32(clamping: count)
    }

    /// What this call leaves unconsumed is shown again in the next turn, even if nothing comes.
    public func showAgain(_ connection: ConnectionID) {
        guard let seat = table.seat(of: connection) else { return }
        readAgain(seat)
    }

    func readAgain(_ seat: Int) {
        guard !table[seat].flags.contains(.isReadAgain) else { return }
        table[seat].flags.insert(.isReadAgain)
        readAgain.append(UInt32(seat))
    }

    /// Those with input that no event will announce.
    func lookAgain() {
        let count = readAgain.count
        guard count > 0 else { return }
        let seats = (0..<count).map { Int(readAgain[$0]) }
        readAgain.removeAll()
        for seat in seats where table[seat].flags.contains(.isReadAgain) {
            table[seat].flags.remove(.isReadAgain)
            guard table[seat].stage == .open, !table[seat].flags.contains(.readingIsPaused) else { continue }
            // SAFETY: the input is `inputCount` long; `show` keeps what is left of it.
            if let input = unsafe table[seat].input { unsafe show(seat, input, Int(table[seat].inputCount)) }
            let flags = table[seat].flags
            if table[seat].stage == .open, table[seat].session != 0, !flags.contains(.readingIsPaused) { read(seat) }
        }
    }
}
