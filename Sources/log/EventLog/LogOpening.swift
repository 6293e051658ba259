import Bytes
import Diagnostics
import Glibc
import System

/// Opens a log for writing: checks the existing files and removes the leftovers of a crash.
struct LogOpening {
    let directory: any StorageDirectory
    let options: EventLogOptions
    var report = EventLogRecovery()
    var sealed: [SegmentSummary] = []

    init(directory: any StorageDirectory, options: EventLogOptions) {
        self.directory = directory
        self.options = options
    }

    private var files: SegmentFiles { SegmentFiles(directory: directory) }

    func takeLock() throws(EventLogError) -> any StorageLock {
        switch try reading({ () throws(SystemError) in try directory.lock(LogFile.lock) }) {
        case .taken(let lock): return lock
        case .heldElsewhere(let processID):
            throw .lockedElsewhere(path: directory.path, processID: processID)
        }
    }

    mutating func open() throws(EventLogError) -> (file: any StorageFile, index: SegmentIndex) {
        try finishErasure()
        let sequences = try files.sequences()
        try files.requireUnbroken(sequences)
        guard let last = sequences.last else { return try create() }
        try reading { () throws(SystemError) in try removeLeftovers(sequences, last) }
        for sequence in sequences.dropLast() { sealed.append(try summary(ofSealed: sequence)) }
        return try recover(last)
    }

    /// Completes an unfinished erasure. A full disk must not keep the log from opening: then the plan waits for the
    /// next start.
    private mutating func finishErasure() throws(EventLogError) {
        do throws(EventLogError) {
            let alone = try lockErasure()
            defer { withExtendedLifetime(alone) {} }
            report.erasedSegments = try ErasurePlan.finish(in: directory, options)
        } catch .failure(_) {
            report.hasUnfinishedErasure = true
        } catch .lockedElsewhere(_, _) {
            // Another process is executing the plan now.
            report.hasUnfinishedErasure = true
        }
    }

    /// Takes the lock of erasures. The process of a hub that was killed may hold it for a moment longer.
    private func lockErasure() throws(EventLogError) -> any StorageLock {
        let deadline = Clock.monotonicNanoseconds() + Limits.erasureLockPatience.wholeNanoseconds
        while true {
            do throws(EventLogError) {
                return try EventLogErasure.lock(directory)
            } catch .lockedElsewhere(_, _) where Clock.monotonicNanoseconds() < deadline {
                BackgroundThread.rest(nanoseconds: 50_000_000)
            }
        }
    }

    private mutating func create() throws(EventLogError) -> (file: any StorageFile, index: SegmentIndex) {
        report.isNew = true
        let header = SegmentHeader(
            epoch: options.newEpoch(), sequence: 1, baseOffset: options.firstOffset, baseLSN: options.firstLSN,
            created: options.now(), source: options.source)
        let made = try failing { () throws(EventLogFailure) in
            try SegmentMaker(directory: directory, bytes: options.segmentBytes)
                .make(header, on: nil, gap: nil, withZeros: options.preparesSegments)
        }
        try reading { () throws(SystemError) in try directory.sync() }
        return made
    }

    /// Removes unfinished spares, erasure files without a plan, indexes without a segment, and the index of an unsealed
    /// segment.
    private func removeLeftovers(_ sequences: [UInt64], _ last: UInt64) throws(SystemError) {
        let kept = Set(sequences.dropLast())
        for name in try directory.names() {
            let isOrphan = LogFile.sequence(ofSidecar: name).map { !kept.contains($0) } ?? false
            let isLeft = [LogFile.spare, LogFile.unfinishedErasure, LogFile.erasedSegment].contains(name)
            if isLeft || isOrphan { try directory.remove(name) }
        }
        // Also makes the last segment's own name durable, if a crash prevented that.
        try directory.sync()
    }

    private func openOwn(_ sequence: UInt64) throws(EventLogError) -> (file: any StorageFile, header: SegmentHeader) {
        guard let (file, header) = try files.open(sequence, for: .writing) else {
            throw files.damage(sequence, at: 0, "the segment is missing")
        }
        let previous = sealed.last?.endOffset
        guard previous == nil || previous == header.baseOffset else {
            throw files.damage(sequence, at: 32, "it does not go on where the segment before ends")
        }
        return (file, header)
    }

    /// Checks that the newest segment belongs to this source. Older segments may belong to a source that was replaced
    /// at a gap.
    private func checkSource(_ header: SegmentHeader) throws(EventLogError) {
        guard header.source == options.source else {
            throw .foreignSource(expected: options.source, found: header.source)
        }
    }

    private mutating func summary(ofSealed sequence: UInt64) throws(EventLogError) -> SegmentSummary {
        let (file, header) = try openOwn(sequence)
        if let map = files.sidecar(of: file, header) { return map.summary }
        let scan = try reading { () throws(SystemError) in
            try SegmentScan.of(file, header, keysOf: options.keysOf)
        }
        report.scannedBytes += scan.stoppedAt
        let size = try reading { () throws(SystemError) in try file.size() }
        guard scan.stoppedAt == size, !scan.index.isInsideTransaction else {
            throw files.damage(sequence, at: scan.stoppedAt, scan.finding.words)
        }
        let map = scan.index.map(sealed: true, keyScheme: options.keyScheme)
        // The index only speeds up the next start: a full disk must not keep the log from opening.
        try? map.write(to: directory)
        return map.summary
    }

    /// Finds the end of the last whole transaction and removes everything behind it from the file.
    mutating func recover(_ sequence: UInt64) throws(EventLogError) -> (any StorageFile, SegmentIndex) {
        let (file, header) = try openOwn(sequence)
        try checkSource(header)
        let scan = try reading { () throws(SystemError) in
            try SegmentScan.of(file, header, keysOf: options.keysOf)
        }
        report.scannedBytes += scan.stoppedAt
        let tail = try reading { () throws(SystemError) in
            try SegmentTail.of(file, header, after: scan.stoppedAt)
        }
        if tail == .damaged { throw files.damage(sequence, at: scan.stoppedAt, scan.finding.words) }
        var index = scan.index
        index.abandonTransaction()
        let writtenEnd = if case .torn(let end) = tail { end } else { scan.stoppedAt }
        assert(index.whole.bytes <= writtenEnd, "only what follows the last whole transaction is cut off")
        if writtenEnd > index.whole.bytes {
            report.cutAt = index.whole.bytes
            report.cutBytes = writtenEnd - index.whole.bytes
        }
        try reading { () throws(SystemError) in
            try settle(file, index.whole.bytes, vouched: scan.vouchedBytes, writtenEnd: writtenEnd)
        }
        return (file, index)
    }

    /// Makes the kept bytes durable and sets the rest to zero.
    private func settle(
        _ file: any StorageFile, _ end: UInt64, vouched: UInt64, writtenEnd: UInt64
    ) throws(SystemError) {
        // Bytes that no later entry vouches for may exist in memory only. A sync that failed before the crash can have
        // left their pages marked as written. Therefore these bytes are written again, not only synced.
        try rewrite(file, from: max(vouched, UInt64(SegmentHeader.byteCount)), to: end)
        // No old bytes may lie behind the end: a later entry could end where one of them begins.
        try file.writeZeros(from: end, to: writtenEnd)
        try file.sync()
        // Reserves room again, as before the crash. Without it, the file grows by itself.
        if try file.size() < options.segmentBytes { try? file.reserve(options.segmentBytes) }
    }

    private func rewrite(_ file: any StorageFile, from start: UInt64, to end: UInt64) throws(SystemError) {
        var buffer = ReadBuffer(capacity: Limits.logReadBytes)
        var at = start
        while at < end {
            try buffer.fill(from: file, at: at, wanted: Limits.logReadBytes, limit: end)
            let count = buffer.available(at: at)
            if count == 0 { break }
            try file.write(buffer.bytes(count, at: at), at: at)
            at += UInt64(count)
        }
    }
}

extension SegmentScanner.Step {
    /// Phrase for messages about a place that should have held an entry.
    var words: String {
        switch self {
        case .entry: "an entry"
        case .end: "zeros, or the end of the file, where an entry was"
        case .invalid(let words): words
        }
    }
}
