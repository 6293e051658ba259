import System

/// Problem found in a log.
public enum EventLogProblem: Sendable, Equatable {
    /// Bytes behind the last whole transaction that were never confirmed to any reader or source: left by a crash, or
    /// by a writer at work just now. The next start cuts them off, and so does `repair`.
    case tornTail(position: UInt64, bytes: UInt64)
    /// Bytes that were durable and do not read back.
    case damaged(position: UInt64, finding: String)
    /// The index beside a sealed segment is missing or wrong. The next start builds it again.
    case badIndex
    case missingSegment
    /// The segment does not begin where the one before ends.
    case discontinuity(expected: UInt64, found: UInt64)

    /// True if something that was durable is gone, or cannot be trusted.
    public var isDamage: Bool {
        switch self {
        case .tornTail, .badIndex: false
        case .damaged, .missingSegment, .discontinuity: true
        }
    }
}

public struct SegmentReport: Sendable, Equatable {
    public var sequence: UInt64
    public var path: String
    /// Summary of the entries that read back; nil if not even the header does.
    public var summary: SegmentSummary?
    public var problems: [EventLogProblem] = []
}

/// Reads every checksum of a log. The verifier changes nothing and may run beside a writer.
public enum EventLogVerifier {
    ///
    /// - Parameters:
    ///   - look: sees each entry that reads back, and the number of its segment.
    ///   - progress: told of each segment that was read: how many by now, of how many.
    public static func verify(
        _ directory: any StorageDirectory, look: (UInt64, EntryHeader, RawSpan) -> Void = { _, _, _ in },
        progress: (Int, Int) -> Void = { _, _ in }
    ) throws(EventLogError) -> [SegmentReport] {
        let files = SegmentFiles(directory: directory)
        let sequences = try files.sequences()
        guard let last = sequences.last else { throw .missing(path: directory.path) }
        var reports: [SegmentReport] = []
        for sequence in sequences {
            if let previous = reports.last?.sequence, previous + 1 != sequence {
                reports.append(missing(previous + 1, files))
            }
            var report = SegmentReport(sequence: sequence, path: files.path(sequence))
            try examine(files, isLast: sequence == last, { look(sequence, $0, $1) }, &report)
            noteContinuity(after: reports.last?.summary, &report)
            reports.append(report)
            progress(reports.count, sequences.count)
        }
        return reports
    }

    /// Cuts off a torn tail, and nothing else. Takes the log's lock, so no writer may run.
    public static func repair(_ directory: any StorageDirectory) throws(EventLogError) -> EventLogRecovery {
        let files = SegmentFiles(directory: directory)
        guard let last = try files.sequences().last, let (_, header) = try files.open(last) else {
            throw .missing(path: directory.path)
        }
        var options = EventLogOptions(source: header.source)
        // No room is reserved, because nothing will be written.
        options.segmentBytes = 0
        var opening = LogOpening(directory: directory, options: options)
        let lock = try opening.takeLock()
        defer { withExtendedLifetime(lock) {} }
        _ = try opening.recover(last)
        return opening.report
    }

    /// Returns a report of a missing segment: the first one of a row of missing segments.
    private static func missing(_ sequence: UInt64, _ files: SegmentFiles) -> SegmentReport {
        SegmentReport(sequence: sequence, path: files.path(sequence), problems: [.missingSegment])
    }

    private static func examine(
        _ files: SegmentFiles, isLast: Bool, _ look: (EntryHeader, RawSpan) -> Void, _ report: inout SegmentReport
    ) throws(EventLogError) {
        let opened: (file: any StorageFile, header: SegmentHeader)?
        do {
            opened = try files.open(report.sequence)
        } catch .damaged(let damage) {
            report.problems.append(.damaged(position: damage.position, finding: damage.finding))
            return
        }
        // Retention deleted the segment after the names were read.
        guard let (file, header) = opened else { return }
        let scan = try reading { () throws(SystemError) in try SegmentScan.of(file, header, look: look) }
        report.summary = scan.index.whole
        report.summary?.isSealed = !isLast
        if isLast {
            try examineTail(file, header, scan, &report)
        } else {
            try examineSeal(files, file, header, scan, &report)
        }
    }

    private static func examineTail(
        _ file: any StorageFile, _ header: SegmentHeader, _ scan: SegmentScan, _ report: inout SegmentReport
    ) throws(EventLogError) {
        let whole = scan.index.whole.bytes
        switch try reading({ () throws(SystemError) in try SegmentTail.of(file, header, after: scan.stoppedAt) }) {
        case .damaged: report.problems.append(.damaged(position: scan.stoppedAt, finding: scan.finding.words))
        case .torn(let end): report.problems.append(.tornTail(position: whole, bytes: end - whole))
        case .clean where scan.stoppedAt > whole:
            report.problems.append(.tornTail(position: whole, bytes: scan.stoppedAt - whole))
        case .clean: break
        }
    }

    /// Checks that a sealed segment ends where its file ends, and that its index is valid.
    private static func examineSeal(
        _ files: SegmentFiles, _ file: any StorageFile, _ header: SegmentHeader, _ scan: SegmentScan,
        _ report: inout SegmentReport
    ) throws(EventLogError) {
        let size = try reading { () throws(SystemError) in try file.size() }
        if scan.stoppedAt != size || scan.index.isInsideTransaction {
            report.problems.append(.damaged(position: scan.stoppedAt, finding: scan.finding.words))
        }
        if files.sidecar(of: file, header) == nil { report.problems.append(.badIndex) }
    }

    private static func noteContinuity(after previous: SegmentSummary?, _ report: inout SegmentReport) {
        guard let previous, let summary = report.summary, previous.endOffset != summary.firstOffset else { return }
        report.problems.append(.discontinuity(expected: previous.endOffset, found: summary.firstOffset))
    }
}
