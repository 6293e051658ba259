import Diagnostics
import Glibc

/// Puts pieces together for one call to the kernel: neighbours in memory become one range, small pieces are copied
/// side by side, large ones are pointed at where they lie.
///
/// Copying is what small pieces want: the kernel takes longer for a list of a hundred pointers than it takes us to copy
/// what they point at.
@safe
final class Gather {
    /// Ranges of one or several batches; those of the running one are the last.
    private let ranges: UnsafeMutablePointer<iovec>
    private let rangeCapacity: Int
    private let scratch: UnsafeMutableRawPointer
    private let scratchCapacity: Int
    private var firstRange = 0
    private var rangeEnd = 0
    private var scratchUsed = 0
    private var lastIsScratch = false
    private(set) var byteCount = 0

    init(ranges count: Int, scratchBytes: Int) {
        // SAFETY: both are freed in `deinit`; ranges are written before they are read.
        unsafe ranges = .allocate(capacity: count)
        unsafe scratch = .allocate(byteCount: scratchBytes, alignment: 64)
        rangeCapacity = count
        scratchCapacity = scratchBytes
    }

    deinit {
        // SAFETY: this gather's own allocations.
        unsafe ranges.deallocate()
        unsafe scratch.deallocate()
    }

    /// Starts the first of several batches that stay valid together.
    func reset() {
        rangeEnd = 0
        scratchUsed = 0
        begin()
    }

    /// Starts a batch behind those that were gathered before.
    func begin() {
        firstRange = rangeEnd
        lastIsScratch = false
        byteCount = 0
    }

    /// Whether another batch of usual size fits behind those gathered so far.
    var hasRoom: Bool {
        rangeCapacity - rangeEnd >= Gather.usualRanges && scratchCapacity - scratchUsed >= Gather.usualScratch
    }

    static let usualRanges = 64
    static let usualScratch = 32 << 10

    /// Ranges of the running batch; each is one `iovec`.
    var rangeCount: Int { rangeEnd - firstRange }

    /// One more piece; false when the batch is full and has to go first.
    @inline(__always)
    func add(_ start: UnsafeMutableRawPointer, _ length: Int) -> Bool {
        byteCount += length
        if rangeCount > 0, !lastIsScratch {
            // SAFETY: there is a last range, written before.
            if unsafe isJustBehindLast(start) {
                unsafe ranges[rangeEnd - 1].iov_len += length
                return true
            }
            copyLastIfSmall()
        }
        guard rangeEnd < rangeCapacity, rangeCount < Gather.maximumRanges else {
            byteCount -= length
            return false
        }
        // SAFETY: there is room for one more range.
        unsafe ranges[rangeEnd] = iovec(iov_base: start, iov_len: length)
        rangeEnd += 1
        lastIsScratch = false
        return true
    }

    /// The kernel's `UIO_MAXIOV`.
    private static let maximumRanges = 1024

    /// To be called after the last piece.
    func finish() {
        if rangeCount > 1, !lastIsScratch { copyLastIfSmall() }
    }

    private func isJustBehindLast(_ start: UnsafeMutableRawPointer) -> Bool {
        // SAFETY: there is a last range; addresses are only compared.
        guard let base = unsafe ranges[rangeEnd - 1].iov_base else { return false }
        return unsafe base + ranges[rangeEnd - 1].iov_len == start
    }

    private func copyLastIfSmall() {
        // SAFETY: there is a last range, whose memory its owner keeps for the turn; scratch has room for it.
        let last = unsafe ranges[rangeEnd - 1]
        guard unsafe last.iov_len <= Limits.copiedPieceBytes, unsafe last.iov_len <= scratchCapacity - scratchUsed,
            let source = unsafe last.iov_base
        else { return }
        let target = unsafe scratch + scratchUsed
        unsafe target.copyMemory(from: source, byteCount: last.iov_len)
        unsafe scratchUsed += last.iov_len
        if rangeCount > 1, unsafe endsInScratch(rangeEnd - 2, at: target) {
            rangeEnd -= 1
            unsafe ranges[rangeEnd - 1].iov_len += last.iov_len
        } else {
            unsafe ranges[rangeEnd - 1].iov_base = target
        }
        lastIsScratch = true
    }

    private func endsInScratch(_ index: Int, at target: UnsafeMutableRawPointer) -> Bool {
        // SAFETY: a range written before; addresses are only compared.
        guard let base = unsafe ranges[index].iov_base else { return false }
        return unsafe base >= scratch && base + ranges[index].iov_len == target
    }

    /// The running batch's ranges. Valid until `reset`.
    var batch: UnsafeMutableBufferPointer<iovec> {
        // SAFETY: the running batch's ranges are initialised.
        unsafe UnsafeMutableBufferPointer(start: ranges + firstRange, count: rangeCount)
    }

    /// The batch when it is one range; valid until `reset`.
    var single: UnsafeRawBufferPointer? {
        guard rangeCount == 1 else { return nil }
        // SAFETY: the range is initialised.
        return unsafe UnsafeRawBufferPointer(
            start: ranges[firstRange].iov_base, count: ranges[firstRange].iov_len)
    }
}
