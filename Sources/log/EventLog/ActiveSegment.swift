import Bytes
import Diagnostics
import System

/// The segment that is written to: its file, what is in memory but not durable yet, and its index.
///
///     |······ durable ······|--- batch: in memory until synced ---|
///                        batchStart                              end
///
/// A failed sync leaves unknown which pages reached the disk, and Linux forgets the others. So the batch stays in
/// memory until a sync has succeeded, and every attempt writes all of it again at the same place.
struct ActiveSegment: ~Copyable {
    let file: any StorageFile
    let header: SegmentHeader
    private(set) var index: SegmentIndex
    private var batch: ByteWriter
    /// Everything before is durable.
    private var batchStart: UInt64
    /// The end of the last whole durable transaction.
    private(set) var published: SegmentSummary
    /// Bytes before this may be on the disk, durable or not.
    private var touchedEnd: UInt64
    /// From here to `touchedEnd` lie parts of an abandoned transaction.
    private var staleFrom: UInt64?

    /// A segment whose content up to its index's end is durable, and nothing but zeros behind it.
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

    var end: UInt64 { batchStart + UInt64(batch.count) }
    var pendingBytes: Int { batch.count }
    var isInsideTransaction: Bool { index.isInsideTransaction }

    /// Takes an entry into memory. If that is full it is written through first; when this fails, the entry is not taken.
    @inline(__always)
    mutating func append(_ entry: EntryHeader, payload: RawSpan, keys: Span<UInt64>) throws(EventLogFailure) {
        if batch.count > 0, batch.count + entry.byteCount > Limits.flushBatchBytes { try makeDurable() }
        index.add(entry, keys: keys)
        entry.append(payload: payload, seed: header.checksum, to: &batch)
    }

    /// There are keys that nobody can name.
    mutating func giveUpKeys() { index.giveUpKeys() }

    /// Writes and syncs what is in memory. After a failure call it again: nothing is lost and nothing counts as durable.
    mutating func makeDurable() throws(EventLogFailure) {
        try clearStale()
        guard batch.count > 0 else { return }
        // Before the attempt: also a failed write may have left bytes.
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
    }

    /// Drops what was appended since the last whole transaction.
    mutating func abandonTransaction() {
        index.abandonTransaction()
        let kept = index.whole.bytes
        if kept >= batchStart {
            batch.truncate(to: Int(kept - batchStart))
        } else {
            batch.removeAll()
            batchStart = kept
        }
        if touchedEnd > kept { staleFrom = min(staleFrom ?? kept, kept) }
    }

    /// Overwrites the parts of abandoned transactions with zeros, durably, before anything new is written near them.
    /// Otherwise a power cut could leave a new first part, an old second one of the same length and a new third one: three
    /// valid entries that together are a transaction nobody made.
    private mutating func clearStale() throws(EventLogFailure) {
        guard let from = staleFrom else { return }
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
    /// Overwrites a range with zeros.
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
