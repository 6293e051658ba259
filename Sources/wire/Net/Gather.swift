import Diagnostics
import Glibc

/// Collector of the memory ranges that one call to the kernel sends. It joins pieces that are neighbours in memory,
/// copies small pieces side by side, and passes large ones by pointer.
///
/// Small pieces are copied because the kernel takes longer for a list of a hundred pointers than the copy takes.
@safe
final class Gather {
    /// Memory ranges of one or several batches; the current batch is the last.
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

    /// Discards all batches and starts a new one. Batches that `begin` starts later do not invalidate it.
    func reset() {
        rangeEnd = 0
        scratchUsed = 0
        begin()
    }

    /// Starts another batch. The batches gathered before stay valid.
    func begin() {
        firstRange = rangeEnd
        lastIsScratch = false
        byteCount = 0
    }

    /// True if another batch of usual size fits beside the batches gathered before.
    var hasRoom: Bool {
        rangeCapacity - rangeEnd >= Gather.usualRanges && scratchCapacity - scratchUsed >= Gather.usualScratch
    }

    static let usualRanges = 64
    static let usualScratch = 32 << 10

    /// Number of ranges in the current batch; each is one `iovec`.
    var rangeCount: Int { rangeEnd - firstRange }

    /// Adds a piece of memory to the current batch. Returns false if the batch is full and must be sent first.
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

    /// Largest number of ranges in one call, the kernel's `UIO_MAXIOV`.
    private static let maximumRanges = 1024

    /// Completes the current batch. The caller calls it after the last piece.
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

    /// Memory ranges of the current batch. Valid until `reset`.
    var batch: UnsafeMutableBufferPointer<iovec> {
        // SAFETY: the running batch's ranges are initialised.
        unsafe UnsafeMutableBufferPointer(start: ranges + firstRange, count: rangeCount)
    }

    /// Single range that the current batch consists of; nil if the batch has no or several ranges. Valid until `reset`.
    var single: UnsafeRawBufferPointer? {
        guard rangeCount == 1 else { return nil }
        // SAFETY: the range is initialised.
        return unsafe UnsafeRawBufferPointer(
            start: ranges[firstRange].iov_base, count: ranges[firstRange].iov_len)
    }
}
