import Bytes
import Diagnostics
import System

/// Segment to which the writer appends: its file, its bytes in memory that are not durable yet, and its index.
///
///     |······ durable ······|--- batch: in memory until synced ---|
///                        batchStart                              end
///
/// After a failed sync, the writer cannot know which pages reached the disk, and Linux discards the others. So the
/// batch stays in memory until a sync succeeds. Each attempt writes the whole batch again at the same position.
struct ActiveSegment: ~Copyable {
    let file: any StorageFile
    let header: SegmentHeader
    private(set) var index: SegmentIndex
    private var batch: ByteWriter
    /// Byte position in the segment at which the batch (the bytes in memory that are not durable yet) begins.
    private var batchStart: UInt64
    /// Summary of all durable whole transactions.
    private(set) var published: SegmentSummary
    /// End of the bytes that may have reached the disk, whether durable or not.
    private var touchedEnd: UInt64
    /// Position at which the remains of an abandoned transaction begin; nil if there are none. They end at
    /// `touchedEnd`.
    private var staleFrom: UInt64?

    /// Creates the segment from a file whose bytes are durable up to the end of `index`, and zero after that.
    init(file: any StorageFile, index: SegmentIndex) {
        precondition(!index.isInsideTransaction, "writing begins at the end of a whole transaction")
        self.file = file
        self.header = index.whole.header
        self.index = index
        batch = ByteWriter(capacity: 64 << 10)
        batchStart = index.whole.bytes
        published = index.whole
        touchedEnd = index.whole.bytes
    }

    /// Byte position at which the next entry will begin.
    var end: UInt64 { batchStart + UInt64(batch.count) }
    /// Number of appended bytes that are not durable yet.
    var pendingBytes: Int { batch.count }
    var isInsideTransaction: Bool { index.isInsideTransaction }

    /// Adds an entry to the batch, the bytes in memory that are not durable yet. If the batch is full, it is made
    /// durable first; if that fails, the entry is not added.
    @inline(__always)
    mutating func append(_ entry: EntryHeader, payload: RawSpan, keys: Span<UInt64>) throws(EventLogFailure) {
        if batch.count > 0, batch.count + entry.byteCount > Limits.flushBatchBytes { try makeDurable() }
        index.add(entry, keys: keys)
        entry.append(payload: payload, seed: header.checksum, to: &batch)
        let batchEnd = end
        assert(batchEnd == index.all.bytes, "the batch ends where the index ends")
    }

    /// Records that the keys of some entry are unknown, so that the index must match every key.
    mutating func giveUpKeys() { index.giveUpKeys() }

    /// Writes and syncs all appended bytes that are not durable yet. After a failure nothing is lost and nothing counts
    /// as durable. The caller then calls again.
    mutating func makeDurable() throws(EventLogFailure) {
        try clearStale()
        guard batch.count > 0 else { return }
        // Set before the attempt, because a failed write may leave bytes too.
        touchedEnd = max(touchedEnd, end)
        let file = file
        let start = batchStart
        do {
            try file.write(batch.bytes, at: start)
            try file.sync()
        } catch { throw EventLogFailure(error) }
        batchStart = end
        batch.removeAll()
        batch.shrink(to: 2 * Limits.flushBatchBytes)
        published = index.whole
        assert(published.bytes <= batchStart, "only durable bytes are published")
    }

    /// Removes the entries of the unfinished transaction.
    mutating func abandonTransaction() {
        index.abandonTransaction()
        let kept = index.whole.bytes
        if kept >= batchStart {
            batch.truncate(to: Int(kept - batchStart))
        } else {
            batch.removeAll()
            batchStart = kept
        }
        let batchEnd = end
        assert(batchEnd == kept, "the batch ends with the last whole transaction")
        if touchedEnd > kept { staleFrom = min(staleFrom ?? kept, kept) }
    }

    /// Overwrites the remains of abandoned transactions with zeros and makes that durable, before new entries are
    /// written over them. Otherwise a power failure could leave a new first part, an old second part of the same
    /// length, and a new third part. They would look like a valid transaction that never existed.
    private mutating func clearStale() throws(EventLogFailure) {
        guard let from = staleFrom else { return }
        assert(published.bytes <= from && from < touchedEnd, "leftovers lie behind everything that was published")
        let file = file
        let until = touchedEnd
        try storage { () throws(SystemError) in
            try file.writeZeros(from: from, to: until)
            try file.sync()
        }
        staleFrom = nil
        touchedEnd = max(from, batchStart)
    }
}

extension StorageFile {
    /// Overwrites a range of bytes with zeros.
    func writeZeros(from start: UInt64, to end: UInt64) throws(SystemError) {
        let zeros = [UInt8](repeating: 0, count: Int(min(end - min(start, end), UInt64(Limits.zeroFillBytes))))
        var at = start
        while at < end {
            let count = Int(min(UInt64(zeros.count), end - at))
            // SAFETY: any byte is a valid UInt8, and the span lives for the call.
            unsafe try write(zeros.span.bytes.extracting(0..<count), at: at)
            at += UInt64(count)
        }
    }
}
