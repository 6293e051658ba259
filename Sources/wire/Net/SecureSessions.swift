import Crypto
import Synchronization
import System

/// Current certificate and key, which can be replaced while the server runs. Existing sessions keep the old
/// certificate.
final class TLSSource: Sendable {
    private let paths: SocketSettings.TLS
    private let context: Mutex<TLSContext>

    init(_ paths: SocketSettings.TLS) throws(TLSConfigurationError) {
        self.paths = paths
        context = Mutex(try TLSContext(certificate: paths.certificate, key: paths.key))
    }

    var current: TLSContext { context.withLock { $0 } }

    /// Reads the certificate and key files again. If they cannot be used, throws and keeps the old certificate.
    func reload() throws(TLSConfigurationError) {
        let fresh = try TLSContext(certificate: paths.certificate, key: paths.key)
        context.withLock { $0 = fresh }
    }
}

/// TLS sessions of one loop's connections. Index 0 means "no session".
struct SecureSessions {
    private var all: [Secured?] = [nil]
    private var free: [UInt32] = []

    subscript(index: UInt32) -> Secured? { all[Int(index)] }

    /// Adds a TLS session. Returns its index.
    mutating func add(_ session: Secured) -> UInt32 {
        guard let index = free.popLast() else {
            all.append(session)
            return UInt32(all.count - 1)
        }
        all[Int(index)] = session
        return index
    }

    mutating func remove(_ index: UInt32) {
        guard index != 0 else { return }
        assert(all[Int(index)] != nil, "a session ends once")
        all[Int(index)] = nil
        free.append(index)
    }
}

/// TLS session of a connection, and the address of its peer.
struct Secured {
    let session: TLSSession
    let peer: PeerAddress

    /// Reads decrypted bytes until `room` is full or no more are available. `mayHoldMore` is true if the session may
    /// still hold bytes, or an end or error, that no event of the socket will announce.
    func receive(into room: UnsafeMutableRawBufferPointer) -> (Transfer, mayHoldMore: Bool) {
        var filled = 0
        while filled < room.count {
            // SAFETY: `filled` is below the room's count.
            let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: room[filled...])
            switch unsafe session.read(into: rest) {
            case .moved(let count): filled += count
            case .wantsRead, .wantsWrite: return (filled > 0 ? .moved(filled) : .wouldBlock, false)
            case .finished: return filled > 0 ? (.moved(filled), true) : (.finished, false)
            case .failed: return filled > 0 ? (.moved(filled), true) : (.failed(0), false)
            }
        }
        return (.moved(filled), true)
    }
}

/// Memory in which small pieces are joined into one TLS record.
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

    /// Adds as many bytes as fit. Returns the record when it is full. Bytes that fill a whole record are not copied.
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
