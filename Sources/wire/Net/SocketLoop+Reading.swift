import Diagnostics
import Glibc
import System

/// Input: read into the shared buffer, passed in place, and kept only if the application wants more bytes first.
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

    /// Tells the application that the peer takes no more. All earlier output is with the kernel or queued.
    private func tellStopsTaking(_ seat: Int) {
        guard table[seat].stage == .open, table[seat].flags.contains(.wasOpened) else { return }
        application.stopsTaking(table.id(of: seat))
    }

    // MARK: Reading

    private func read(_ seat: Int) {
        // The application has not examined the present input yet. More input would only accumulate, up to the limit.
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

    /// Size up to which kept input is copied before new input, so that a client that sends few bytes at a time costs
    /// little memory.
    private var smallInput: Int { 4096 }

    /// Reads into large input in place, because a copy for each read would cost quadratic time.
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

    /// Returns the number of bytes received; nil if there were none, after handling the reason.
    private func receive(_ seat: Int, into room: UnsafeMutableRawBufferPointer) -> Int? {
        // SAFETY: the caller's room outlives the call.
        switch unsafe transfer(seat, into: room) {
        case .moved(let count):
            table[seat].lastReceived = now
            if !table[seat].mayHaveWaited { table[seat].heardAfter = lookedAt }
            table[seat].mayHaveWaited = count == room.count
            counts.receivedBytes += count
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

    /// Passes all input to the application, and keeps the bytes that it does not consume.
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
        // The remaining bytes have just begun a message, unless the application holds an earlier part of it.
        if consumed > 0, table[seat].held == 0 { table[seat].unfinishedSince = 0 }
        unsafe keep(seat, start, count, from: consumed)
    }

    // MARK: Unconsumed input

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

    /// Grows the memory of the input to at least `wanted` bytes.
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

    /// Closes after the peer finished sending. Answers to its earlier requests are still sent.
    private func peerFinished(_ seat: Int) {
        table[seat].flags.insert(.peerFinished)
        tellStopsTaking(seat)
        startClosing(seat, .byPeer, within: Limits.farewellLimit.nanoseconds)
    }

    /// Discards input until the peer has closed. If the hub closed with unread bytes, the kernel would discard sent
    /// output.
    private func readToEnd(_ seat: Int) {
        // SAFETY: the area outlives the call; nobody looks at the bytes.
        let room = unsafe UnsafeMutableRawBufferPointer(start: readBuffer.base, count: readBuffer.byteCount)
        switch unsafe StreamSocket.receive(table[seat].descriptor, into: room) {
        case .moved, .wouldBlock: break
        case .finished, .failed: end(seat, table[seat].end, byReset: false)
        }
    }

    // MARK: Pausing

    /// Stops reading until `resumeReading`. The peer notices when the kernel's buffers are full.
    public func pauseReading(_ connection: ConnectionID) {
        guard let seat = table.seat(of: connection), table[seat].stage == .open else { return }
        table[seat].flags.insert(.readingIsPaused)
        table[seat].mayHaveWaited = true
        watch(seat)
    }

    /// Resumes reading and passes unconsumed bytes again, even without new input. Returns false if reading was not
    /// paused.
    @discardableResult
    public func resumeReading(_ connection: ConnectionID) -> Bool {
        guard let seat = table.seat(of: connection), table[seat].flags.contains(.readingIsPaused) else { return false }
        table[seat].flags.remove(.readingIsPaused)
        watch(seat)
        // The peer waited for the hub, so its time to complete the message starts again.
        table[seat].unfinishedSince = 0
        if table[seat].inputCount > 0 { readAgain(seat) }
        return true
    }

    /// Postpones `received` until there are `count` bytes, or the receive limit is reached.
    public func awaitBytes(_ count: Int, for connection: ConnectionID) {
        guard let seat = table.seat(of: connection) else { return }
        table[seat].inputWanted = UInt32(clamping: count)
    }

    /// Passes the bytes left unconsumed again in the next turn, even without new input.
    public func showAgain(_ connection: ConnectionID) {
        guard let seat = table.seat(of: connection) else { return }
        readAgain(seat)
    }

    func readAgain(_ seat: Int) {
        guard !table[seat].flags.contains(.isReadAgain) else { return }
        table[seat].flags.insert(.isReadAgain)
        readAgain.append(UInt32(seat))
    }

    /// Handles connections with input that no event announces.
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
