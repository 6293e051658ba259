import Crypto
import Diagnostics
import Synchronization
import System

/// Current certificate, which may be replaced while the server runs. Existing sessions keep theirs.
final class TLSSource: Sendable {
    private let paths: SocketSettings.TLS
    private let context: Mutex<TLSContext>

    init(_ paths: SocketSettings.TLS) throws(TLSConfigurationError) {
        self.paths = paths
        context = Mutex(try TLSContext(certificate: paths.certificate, key: paths.key))
    }

    var current: TLSContext { context.withLock { $0 } }

    /// Reads the files again. If they cannot be used, the certificate stays.
    func reload() throws(TLSConfigurationError) {
        let fresh = try TLSContext(certificate: paths.certificate, key: paths.key)
        context.withLock { $0 = fresh }
    }
}

/// TLS sessions of one loop's connections. Index 0 stands for none.
struct SecureSessions {
    private var all: [Secured?] = [nil]
    private var free: [UInt32] = []

    subscript(index: UInt32) -> Secured? { all[Int(index)] }

    /// Adds a session. Returns its index.
    mutating func add(_ session: Secured) -> UInt32 {
        guard let index = free.popLast() else {
            all.append(session)
            return UInt32(all.count - 1)
        }
        all[Int(index)] = session
        return index
    }

    mutating func remove(_ index: UInt32) {
        assert(index != 0 && all[Int(index)] != nil, "a session ends once")
        all[Int(index)] = nil
        free.append(index)
    }
}

/// TLS: a handshake before the application is told, and records instead of plain sends. All other code is shared.
extension SocketLoop {
    // MARK: Handshake

    /// Starts a handshake. Returns false if there is no memory for a session.
    func startHandshake(_ seat: Int, _ peer: PeerAddress, _ source: TLSSource) -> Bool {
        guard let session = source.current.session(on: table[seat].descriptor) else { return false }
        table[seat].session = sessions.add(Secured(session: session, peer: peer))
        table[seat].stage = .handshaking
        table[seat].deadline = max(time(after: settings.handshakeLimit.nanoseconds), 1)
        needSweep(at: table[seat].deadline)
        return true
    }

    func continueHandshake(_ seat: Int) {
        guard let secured = secured(seat) else { return }
        switch secured.session.handshake() {
        case .moved:
            table[seat].stage = .open
            table[seat].deadline = 0
            table[seat].lastReceived = now
            setWatched(seat, [.readable, .peerFinished])
            if table[seat].stage == .open { open(seat, from: secured.peer) }
        case .wantsRead: setWatched(seat, .readable)
        case .wantsWrite: setWatched(seat, .writable)
        case .finished, .failed: failHandshake(seat)
        }
    }

    func failHandshake(_ seat: Int) {
        refuse(.handshake, 0)
        end(seat, .tlsFailed, byReset: false)
    }

    func secured(_ seat: Int) -> Secured? {
        table[seat].session == 0 ? nil : sessions[table[seat].session]
    }

    func releaseSession(_ seat: Int) {
        let index = table[seat].session
        guard index != 0 else { return }
        sessions.remove(index)
        table[seat].session = 0
    }

    // MARK: Receiving

    /// Reads as many bytes as are available and fit. A session may hold bytes that the socket no longer reports.
    func receiveSecurely(_ seat: Int, _ session: TLSSession, into room: UnsafeMutableRawBufferPointer) -> Transfer {
        var filled = 0
        while filled < room.count {
            // SAFETY: `filled` is below the room's count.
            let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: room[filled...])
            switch unsafe session.read(into: rest) {
            case .moved(let count): filled += count
            case .wantsRead, .wantsWrite: return filled > 0 ? .moved(filled) : .wouldBlock
            case .finished:
                guard filled > 0 else { return .finished }
                readAgain(seat)
                return .moved(filled)
            case .failed:
                guard filled > 0 else { return .failed(0) }
                readAgain(seat)
                return .moved(filled)
            }
        }
        readAgain(seat)
        return .moved(filled)
    }

    // MARK: Sending

    /// Sends record by record. Small pieces share a record, and a large piece continues in the next one.
    func flushSecurely(_ seat: Int, _ session: TLSSession, _ first: UInt32) {
        var link = first
        var offset = 0
        while link != 0 {
            // SAFETY: the record lies in a piece of this turn or in the record area, until the next one is made.
            let record = unsafe record(from: link, offset)
            switch unsafe session.write(record) {
            case .moved(let count):
                counts.sentBytes += count
                skip(&link, &offset, count)
            case .wantsRead, .wantsWrite: return block(seat, link, skipping: offset, committed: record.count)
            case .finished, .failed: return end(seat, .tlsFailed, byReset: true)
            }
        }
    }

    private func skip(_ link: inout UInt32, _ offset: inout Int, _ count: Int) {
        offset += count
        while link != 0 {
            let length = Int(arena.extent(of: links[Int(link)].piece).length)
            guard offset >= length else { return }
            offset -= length
            link = links[Int(link)].next
        }
    }

    /// Returns the next record's bytes: a part of a large piece in place, or several pieces side by side.
    private func record(from start: UInt32, _ offset: Int) -> UnsafeRawBufferPointer {
        recordArea.begin()
        var link = start
        var skipped = offset
        while link != 0 {
            let extent = arena.extent(of: links[Int(link)].piece)
            // SAFETY: `skipped` is less than the extent's length, all of which is a piece of this turn.
            let rest = unsafe UnsafeRawBufferPointer(
                start: arena.address(of: extent) + skipped, count: Int(extent.length) - skipped)
            if let whole = unsafe recordArea.add(rest) { return unsafe whole }
            skipped = 0
            link = links[Int(link)].next
        }
        return unsafe recordArea.bytes
    }

    /// Sends a backlog. OpenSSL requires at least the bytes that were offered before. That holds, because both records
    /// begin at the front of the same queue and are as long as possible.
    func resumeSecurely(_ seat: Int, _ session: TLSSession, _ backlog: Backlog) {
        while !backlog.isEmpty {
            // SAFETY: the record lies in a chunk that the backlog retains, or in the record area until the next is made.
            let record = unsafe record(of: backlog)
            switch unsafe session.write(record) {
            case .moved(let count):
                counts.sentBytes += count
                backlog.advance(count, arena)
            case .wantsRead, .wantsWrite:
                backlog.committed = max(backlog.committed, record.count)
                return
            case .finished, .failed: return end(seat, .tlsFailed, byReset: true)
            }
        }
    }

    private func record(of backlog: Backlog) -> UnsafeRawBufferPointer {
        recordArea.begin()
        for index in 0..<backlog.count {
            let extent = backlog[index].extent
            // SAFETY: the backlog retains the extent's chunk.
            let bytes = unsafe UnsafeRawBufferPointer(start: arena.address(of: extent), count: Int(extent.length))
            if let whole = unsafe recordArea.add(bytes) { return unsafe whole }
        }
        return unsafe recordArea.bytes
    }
}

/// State of a connection with TLS.
struct Secured {
    let session: TLSSession
    let peer: PeerAddress
}

/// Memory in which small pieces are joined to one TLS record.
@safe
final class RecordArea {
    private let base: UnsafeMutableRawPointer
    private var used = 0

    init() {
        // SAFETY: freed in `deinit`.
        unsafe base = .allocate(byteCount: TLSSession.recordBytes, alignment: 64)
    }

    deinit {
        // SAFETY: this area's own allocation.
        unsafe base.deallocate()
    }

    func begin() { used = 0 }

    /// Adds as many of the bytes as fit, and returns the record when it is full. Bytes that fill a whole record are not
    /// copied.
    func add(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        let size = TLSSession.recordBytes
        // SAFETY: what is looked at and copied is within the bytes' count and the area's size.
        if used == 0, bytes.count >= size { return unsafe UnsafeRawBufferPointer(rebasing: bytes[..<size]) }
        let count = min(bytes.count, size - used)
        if count > 0, let start = bytes.baseAddress {
            unsafe (base + used).copyMemory(from: start, byteCount: count)
        }
        used += count
        return used == size ? unsafe self.bytes : nil
    }

    var bytes: UnsafeRawBufferPointer {
        // SAFETY: the first `used` bytes were written.
        unsafe UnsafeRawBufferPointer(start: base, count: used)
    }
}
