import Diagnostics
import Glibc

/// Input of one connection that its application has not consumed yet, and the time since when it is incomplete.
///
/// Plain, because it lies in the table of connections. The loop calls `forget` when a connection has ended.
@safe
struct KeptInput: BitwiseCopyable {
    private(set) var start: UnsafeMutableRawPointer?
    private(set) var count: UInt32 = 0
    private var capacity: UInt32 = 0
    /// Number of input bytes below which the loop does not call the application.
    private var wanted: UInt32 = 0
    /// Bytes that the application holds of an incomplete message.
    private var held: UInt32 = 0
    /// Time since when a message is incomplete; 0 if none is.
    private(set) var unfinishedSince: UInt64 = 0

    init() {
        // SAFETY: null is no input.
        unsafe start = nil
    }

    /// Size up to which kept input is copied before new input, so that a client that sends few bytes at a time costs
    /// little memory.
    static let smallBytes = 4096

    /// True if new input goes behind the kept input in place, because a copy for each read would cost quadratic time.
    var isLarge: Bool { count > UInt32(Self.smallBytes) }

    /// Bytes of input that are not counted, because they fit at the beginning of the shared buffer.
    private static let uncountedBytes = 16 << 10

    /// Bytes of memory that count against a budget.
    var chargedBytes: Int {
        let bytes = Int(capacity) + Int(held)
        return bytes > Self.uncountedBytes ? bytes : 0
    }

    // MARK: Bytes

    /// Copies the input to the front of an area, which is larger than `smallBytes`. Returns the number of bytes.
    func copy(to area: UnsafeMutableRawPointer) -> Int {
        // SAFETY: the caller's area has room; `count` bytes are initialised.
        if let start = unsafe start { unsafe area.copyMemory(from: start, byteCount: Int(count)) }
        return Int(count)
    }

    /// Makes room for more input behind the kept input.
    mutating func growForMore() {
        let kept = Int(count)
        reserve(kept + min(max(kept, 16 << 10), Limits.inputGrowthBytes))
    }

    /// Memory behind the input; nil without input.
    var room: UnsafeMutableRawBufferPointer? {
        // SAFETY: the memory is `capacity` long, of which `count` are filled.
        guard let start = unsafe start else { return nil }
        return unsafe UnsafeMutableRawBufferPointer(start: start + Int(count), count: Int(capacity) - Int(count))
    }

    /// Adds bytes that were written into `room`.
    mutating func append(_ bytes: Int) { count += UInt32(bytes) }

    /// Keeps the bytes behind the first `consumed` of the `count` that the application has seen from `bytes` on.
    mutating func keep(_ bytes: UnsafeMutableRawPointer, _ count: Int, from consumed: Int, now: UInt64) {
        // The remaining bytes have just begun a message, unless the application holds an earlier part of it.
        if consumed > 0, held == 0 { unfinishedSince = 0 }
        let left = count - consumed
        if left == 0 { return forget(now: now) }
        // SAFETY: `left` bytes lie behind what was consumed; memmove allows for moving within the input itself.
        if unsafe start == bytes {
            if consumed > 0 { unsafe memmove(bytes, bytes + consumed, left) }
            shrink(to: left)
        } else {
            self.count = 0
            reserve(left)
            if let start = unsafe start { unsafe memcpy(start, bytes + consumed, left) }
        }
        self.count = UInt32(left)
        updateTime(now)
    }

    mutating func forget(now: UInt64) {
        // SAFETY: the input's own memory, forgotten at once.
        guard let start = unsafe start else { return }
        unsafe free(start)
        unsafe self.start = nil
        count = 0
        capacity = 0
        updateTime(now)
    }

    /// Grows the memory to at least `bytes`.
    private mutating func reserve(_ bytes: Int) {
        if bytes > Int(capacity) { resize(to: (bytes + 63) & ~63) }
    }

    private mutating func shrink(to left: Int) {
        if capacity > 64 << 10, left < Int(capacity) / 8 { resize(to: max((left + 63) & ~63, 64)) }
    }

    private mutating func resize(to capacity: Int) {
        // SAFETY: realloc moves what was kept; the old address is replaced at once.
        guard let moved = unsafe realloc(start, capacity) else { preconditionFailure("no memory for input") }
        unsafe start = moved
        self.capacity = UInt32(capacity)
    }

    // MARK: What the application does with it

    /// Postpones calls to the application until there are `bytes` bytes.
    mutating func await(_ bytes: Int) { wanted = UInt32(clamping: bytes) }

    /// True if `count` bytes are as many as the application waits for, which then waits no more.
    mutating func endsWait(with count: Int) -> Bool {
        guard count >= Int(wanted) else { return false }
        wanted = 0
        return true
    }

    /// Records that the application holds `bytes` of an incomplete message. With `restarting` it is another message
    /// than before.
    mutating func hold(_ bytes: Int, restarting: Bool, now: UInt64) {
        held = UInt32(clamping: bytes)
        if restarting { unfinishedSince = 0 }
        updateTime(now)
    }

    // MARK: The time of an incomplete message

    /// Gives the peer its whole time again, because the hub has kept it waiting.
    mutating func restartTime() { unfinishedSince = 0 }

    /// Returns the time at which the incomplete message must be complete; `.max` if there is none.
    func dueTime(limit: UInt64) -> UInt64 { unfinishedSince == 0 ? .max : unfinishedSince + limit }

    private mutating func updateTime(_ now: UInt64) {
        if count == 0, held == 0 {
            unfinishedSince = 0
        } else if unfinishedSince == 0 {
            unfinishedSince = now
        }
    }
}
