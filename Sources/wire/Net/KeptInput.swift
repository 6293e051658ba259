import Diagnostics
import Glibc

/// Input of one connection that the application has not consumed yet, and the time since which a message is incomplete.
///
/// The type is plain, because it lies in the table of connections. It frees no memory by itself: the loop calls
/// `forget` when a connection has ended.
@safe
struct KeptInput: BitwiseCopyable {
    private(set) var start: UnsafeMutableRawPointer?
    private(set) var count: UInt32 = 0
    private var capacity: UInt32 = 0
    /// Number of input bytes below which the loop does not call the application.
    private var wanted: UInt32 = 0
    /// Number of bytes that the application itself stores of an incomplete message.
    private var held: UInt32 = 0
    /// Monotonic time, in nanoseconds, since which a message is incomplete; 0 if none is.
    private(set) var unfinishedSince: UInt64 = 0

    init() {
        // SAFETY: null is no input.
        unsafe start = nil
    }

    /// Number of bytes up to which the loop copies kept input into the shared buffer, in front of new input. So a
    /// client that sends few bytes at a time costs little memory.
    static let smallBytes = 4096

    /// True if the loop reads new input directly after the kept input. Copying a large input at each read would take
    /// quadratic time.
    var isLarge: Bool { count > UInt32(Self.smallBytes) }

    /// Number of kept bytes that are not counted, because so much input fits at the beginning of the shared buffer.
    private static let uncountedBytes = 16 << 10

    /// Number of kept bytes that count against a budget.
    var chargedBytes: Int {
        let bytes = Int(capacity) + Int(held)
        return bytes > Self.uncountedBytes ? bytes : 0
    }

    // MARK: Bytes

    /// Copies the kept input to the beginning of a memory area, which must be larger than `smallBytes`. Returns the
    /// number of bytes.
    func copy(to area: UnsafeMutableRawPointer) -> Int {
        // SAFETY: the caller's area has room; `count` bytes are initialised.
        if let start = unsafe start { unsafe area.copyMemory(from: start, byteCount: Int(count)) }
        return Int(count)
    }

    /// Enlarges the memory, so that more input can be read directly after the kept input.
    mutating func growForMore() {
        let kept = Int(count)
        reserve(kept + min(max(kept, 16 << 10), Limits.inputGrowthBytes))
    }

    /// Unused memory after the kept input, for reading more; nil if there is no input.
    var room: UnsafeMutableRawBufferPointer? {
        // SAFETY: the memory is `capacity` long, of which `count` are filled.
        guard let start = unsafe start else { return nil }
        return unsafe UnsafeMutableRawBufferPointer(start: start + Int(count), count: Int(capacity) - Int(count))
    }

    /// Counts bytes that were read into `room` as kept input.
    mutating func append(_ bytes: Int) { count += UInt32(bytes) }

    /// Keeps the bytes that the application has not consumed: those from index `consumed` on, of the `count` bytes at
    /// `bytes`.
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

    /// Grows the memory of the kept input to at least `bytes`.
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

    // MARK: The application's part

    /// Makes the loop call the application again only when there are `bytes` bytes of input.
    mutating func await(_ bytes: Int) { wanted = UInt32(clamping: bytes) }

    /// True if `count` bytes of input are as many as the application waits for. Its wait, which `await` started, then
    /// ends.
    mutating func endsWait(with count: Int) -> Bool {
        guard count >= Int(wanted) else { return false }
        wanted = 0
        return true
    }

    /// Records that the application itself stores `bytes` bytes of an incomplete message. With `restarting` it is a new
    /// message, whose time starts now.
    mutating func hold(_ bytes: Int, restarting: Bool, now: UInt64) {
        held = UInt32(clamping: bytes)
        if restarting { unfinishedSince = 0 }
        updateTime(now)
    }

    // MARK: The time of an incomplete message

    /// Restarts the time that the peer has to complete its message, because the hub has kept the peer waiting.
    mutating func restartTime() { unfinishedSince = 0 }

    /// Returns the monotonic time, in nanoseconds, at which the incomplete message must be complete; `.max` if there is
    /// none.
    func dueTime(limit: UInt64) -> UInt64 { unfinishedSince == 0 ? .max : unfinishedSince + limit }

    private mutating func updateTime(_ now: UInt64) {
        if count == 0, held == 0 {
            unfinishedSince = 0
        } else if unfinishedSince == 0 {
            unfinishedSince = now
        }
    }
}
