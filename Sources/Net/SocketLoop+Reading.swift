import Diagnostics
import Glibc
import System

/// What comes in: read into the shared buffer, shown in place, kept only when the application wants more of it first.
extension SocketLoop {
    func handle(_ events: Epoll.Events, _ slot: Int) {
        switch table[slot].stage {
        case .open:
            if events.contains(.writable), table[slot].backlog != 0 { resume(slot) }
            guard table[slot].stage == .open else { return }
            if table[slot].flags.contains(.readingIsPaused) {
                if !events.isDisjoint(with: [.failed, .hungUp]) { endBroken(slot) }
            } else if !events.isDisjoint(with: [.readable, .peerFinished, .failed, .hungUp]) {
                read(slot)
            }
        case .closing:
            if !events.isDisjoint(with: [.failed, .hungUp]) { return endBroken(slot) }
            if events.contains(.writable) { resume(slot) }
        case .lingering: readToEnd(slot)
        case .handshaking: continueHandshake(slot)
        case .free, .ended: break
        }
    }

    func endBroken(_ slot: Int) {
        let code = StreamSocket.pendingFailure(of: table[slot].descriptor)
        end(slot, code == 0 ? .byPeer : .failed(code: code), byReset: true)
    }

    // MARK: Reading

    private func read(_ slot: Int) {
        // The application has yet to look at what there is: more would only pile up before it, up to the limit.
        if table[slot].flags.contains(.isReadAgain), table[slot].inputCount > 0 { return }
        if table[slot].inputCount > UInt32(smallInput) { return readMore(slot) }
        // SAFETY: `smallInput` is less than the area; what was kept goes before what comes.
        let kept = Int(table[slot].inputCount)
        if kept > 0, let input = unsafe table[slot].input {
            unsafe readBuffer.base.copyMemory(from: input, byteCount: kept)
        }
        let room = unsafe UnsafeMutableRawBufferPointer(
            start: readBuffer.base + kept, count: readBuffer.byteCount - kept)
        guard let count = unsafe receive(slot, into: room) else { return }
        unsafe show(slot, readBuffer.base, kept + count)
    }

    /// Input up to this is copied before what follows it, so that a client that sends drop by drop costs little memory.
    private var smallInput: Int { 4096 }

    /// Large input grows where it is: copying it for each read would cost its square.
    private func readMore(_ slot: Int) {
        let kept = Int(table[slot].inputCount)
        reserveInput(slot, kept + min(max(kept, 16 << 10), Limits.inputGrowthBytes))
        // SAFETY: the input's memory is `inputCapacity` long, of which `kept` are filled.
        guard let input = unsafe table[slot].input else { return }
        let room = unsafe UnsafeMutableRawBufferPointer(
            start: input + kept, count: Int(table[slot].inputCapacity) - kept)
        guard let count = unsafe receive(slot, into: room) else { return }
        table[slot].inputCount += UInt32(count)
        unsafe show(slot, input, kept + count)
    }

    /// How many bytes came; nil when none did, and whatever that means has been done.
    private func receive(_ slot: Int, into room: UnsafeMutableRawBufferPointer) -> Int? {
        // SAFETY: the caller's room outlives the call.
        switch unsafe transfer(slot, into: room) {
        case .moved(let count):
            table[slot].lastReceived = now
            receivedBytes += count
            return count
        case .wouldBlock: return nil
        case .finished:
            peerFinished(slot)
            return nil
        case .failed(let code):
            end(slot, table[slot].session == 0 ? .failed(code: code) : .tlsFailed, byReset: true)
            return nil
        }
    }

    @inline(__always)
    private func transfer(_ slot: Int, into room: UnsafeMutableRawBufferPointer) -> Transfer {
        // SAFETY: the caller's room outlives the call.
        if let secured = secured(slot) { return unsafe receiveSecurely(slot, secured.session, into: room) }
        return unsafe StreamSocket.receive(table[slot].descriptor, into: room)
    }

    /// Shows the application all there is, and keeps what it leaves.
    private func show(_ slot: Int, _ start: UnsafeMutableRawPointer, _ count: Int) {
        guard count >= Int(table[slot].inputWanted) else { return unsafe keep(slot, start, count, from: 0) }
        table[slot].inputWanted = 0
        let generation = table[slot].generation
        // SAFETY: `count` bytes from `start` on are initialised. The memory stays as long as the call: a connection that
        // ends during it keeps its input until the end of the turn.
        var bytes = unsafe MutableRawSpan(_unsafeStart: start, byteCount: count)
        let consumed = application.received(table.id(of: slot), &bytes)
        precondition(consumed >= 0 && consumed <= count, "an application consumes what it was shown")
        guard table[slot].generation == generation, table[slot].stage == .open else { return }
        // What is left was begun just now, unless the application has some of it, too.
        if consumed > 0, table[slot].held == 0 { table[slot].unfinishedSince = 0 }
        unsafe keep(slot, start, count, from: consumed)
    }

    // MARK: What is left

    private func keep(_ slot: Int, _ start: UnsafeMutableRawPointer, _ count: Int, from consumed: Int) {
        let left = count - consumed
        if left == 0 { return forgetInput(slot) }
        guard left < settings.receiveBytes else { return end(slot, .inputTooLong, byReset: true) }
        // SAFETY: `left` bytes lie behind what was consumed; memmove allows for moving within the input itself.
        if unsafe table[slot].input == start {
            if consumed > 0 { unsafe memmove(start, start + consumed, left) }
            shrinkInput(slot, left)
        } else {
            table[slot].inputCount = 0
            reserveInput(slot, left)
            if let input = unsafe table[slot].input { unsafe memcpy(input, start + consumed, left) }
        }
        table[slot].inputCount = UInt32(left)
        noteHeld(slot, before: heldInput(slot))
    }

    /// Makes the input's memory at least this long.
    private func reserveInput(_ slot: Int, _ wanted: Int) {
        guard wanted > Int(table[slot].inputCapacity) else { return }
        let capacity = (wanted + 63) & ~63
        resizeInput(slot, capacity)
    }

    private func shrinkInput(_ slot: Int, _ left: Int) {
        let capacity = Int(table[slot].inputCapacity)
        if capacity > 64 << 10, left < capacity / 8 { resizeInput(slot, max((left + 63) & ~63, 64)) }
    }

    private func resizeInput(_ slot: Int, _ capacity: Int) {
        let before = heldInput(slot)
        defer { noteHeld(slot, before: before) }
        // SAFETY: realloc moves what was kept; the old address is replaced at once.
        guard let moved = unsafe realloc(table[slot].input, capacity) else {
            preconditionFailure("no memory for input")
        }
        unsafe table[slot].input = moved
        table[slot].inputCapacity = UInt32(capacity)
    }

    func forgetInput(_ slot: Int) {
        guard let input = unsafe table[slot].input else { return }
        let before = heldInput(slot)
        // SAFETY: the input's own memory, forgotten at once.
        unsafe free(input)
        unsafe table[slot].input = nil
        table[slot].inputCount = 0
        table[slot].inputCapacity = 0
        noteHeld(slot, before: before)
    }

    // MARK: The end of input

    /// What it asked for before it finished is still sent.
    private func peerFinished(_ slot: Int) {
        table[slot].flags.insert(.peerFinished)
        startClosing(slot, .byPeer, within: Limits.farewellLimit.nanoseconds)
    }

    /// Until the peer has seen our end: closing with bytes unread would make the kernel take back what was sent.
    private func readToEnd(_ slot: Int) {
        // SAFETY: the area outlives the call; nobody looks at the bytes.
        let room = unsafe UnsafeMutableRawBufferPointer(start: readBuffer.base, count: readBuffer.byteCount)
        switch unsafe StreamSocket.receive(table[slot].descriptor, into: room) {
        case .moved, .wouldBlock: break
        case .finished, .failed: end(slot, table[slot].end, byReset: false)
        }
    }

    // MARK: Pausing

    /// Nothing more is read from it until `resumeReading`; the peer feels it when the kernel's buffers are full.
    public func pauseReading(_ connection: ConnectionID) {
        guard let slot = table.slot(of: connection), table[slot].stage == .open else { return }
        table[slot].flags.insert(.readingIsPaused)
        watch(slot)
    }

    /// Reads on. What was left unconsumed is shown again, even if nothing comes. False where reading was not paused.
    @discardableResult
    public func resumeReading(_ connection: ConnectionID) -> Bool {
        guard let slot = table.slot(of: connection), table[slot].flags.contains(.readingIsPaused) else { return false }
        table[slot].flags.remove(.readingIsPaused)
        watch(slot)
        // It waited for us, and not we for it.
        table[slot].unfinishedSince = 0
        if table[slot].inputCount > 0 { readAgain(slot) }
        return true
    }

    /// Do not call `received` before there are this many bytes, or the receive limit is reached.
    public func awaitBytes(_ count: Int, for connection: ConnectionID) {
        guard let slot = table.slot(of: connection) else { return }
        table[slot].inputWanted = UInt32(clamping: count)
    }

    /// What this call leaves unconsumed is shown again in the next turn, even if nothing comes.
    public func showAgain(_ connection: ConnectionID) {
        guard let slot = table.slot(of: connection) else { return }
        readAgain(slot)
    }

    func readAgain(_ slot: Int) {
        guard !table[slot].flags.contains(.isReadAgain) else { return }
        table[slot].flags.insert(.isReadAgain)
        readAgain.append(UInt32(slot))
    }

    /// Those with input that no event will announce.
    func lookAgain() {
        let count = readAgain.count
        guard count > 0 else { return }
        let slots = (0..<count).map { Int(readAgain[$0]) }
        readAgain.removeAll()
        for slot in slots where table[slot].flags.contains(.isReadAgain) {
            table[slot].flags.remove(.isReadAgain)
            guard table[slot].stage == .open, !table[slot].flags.contains(.readingIsPaused) else { continue }
            // SAFETY: the input is `inputCount` long; `show` keeps what is left of it.
            if let input = unsafe table[slot].input { unsafe show(slot, input, Int(table[slot].inputCount)) }
            let flags = table[slot].flags
            if table[slot].stage == .open, table[slot].session != 0, !flags.contains(.readingIsPaused) { read(slot) }
        }
    }
}
