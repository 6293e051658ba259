import Bytes
import Diagnostics
import Glibc
import System

/// Opening of a log for writing. It checks the existing files and removes what a crash left.
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

    /// Finishes an interrupted erasure. If the disk is full, the log is opened all the same, and the next start
    /// finishes the plan.
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

    /// Takes the lock for erasures. A hub that was just killed may hold it a moment longer, so the method tries for a
    /// while.
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

    /// Removes unfinished spare segments, erasure files without a plan, indexes without a segment, and the index of a
    /// segment that is not sealed.
    private func removeLeftovers(_ sequences: [UInt64], _ last: UInt64) throws(SystemError) {
        let kept = Set(sequences.dropLast())
        for name in try directory.names() {
            let isOrphan = LogFile.sequence(ofSidecar: name).map { !kept.contains($0) } ?? false
            let isLeft = [LogFile.spare, LogFile.unfinishedErasure, LogFile.erasedSegment].contains(name)
            if isLeft || isOrphan { try directory.remove(name) }
        }
        // The sync also makes the name of the last segment durable, in case a crash prevented that.
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
        // The index only makes the next start faster, so a full disk does not prevent opening the log.
        try? map.write(to: directory)
        return map.summary
    }

    /// Finds the end of the last whole transaction and removes everything after it from the file.
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
            try settle(file, index.whole.bytes, vouched: scan.confirmedBytes, writtenEnd: writtenEnd)
        }
        return (file, index)
    }

    /// Makes the recovered whole transactions of a segment durable and overwrites the rest of the file with zeros.
    private func settle(
        _ file: any StorageFile, _ end: UInt64, vouched: UInt64, writtenEnd: UInt64
    ) throws(SystemError) {
        // If no later entry shows that bytes were durable, they may exist in memory only: a failed sync before the
        // crash can have marked their pages as written. So they are written again, not only synced.
        try rewrite(file, from: max(vouched, UInt64(SegmentHeader.byteCount)), to: end)
        // No old bytes may be left after the end, because a later entry could end exactly where one of them begins.
        try file.writeZeros(from: end, to: writtenEnd)
        try file.sync()
        // Space is reserved again as before the crash. If that fails, the file grows when it is written.
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
    /// Phrase for messages about a place where an entry was expected.
    var words: String {
        switch self {
        case .entry: "an entry"
        case .end: "zeros, or the end of the file, where an entry was"
        case .invalid(let words): words
        }
    }
}
