import System

/// Problem that was found in a log.
public enum EventLogProblem: Sendable, Equatable {
    /// Bytes after the last whole transaction that no reader or source was ever told of as durable. A crash left them,
    /// or a running writer is writing them now. The next start of the hub, or `repair`, cuts them off.
    case tornTail(position: UInt64, bytes: UInt64)
    /// Bytes that were durable and cannot be read any more.
    case damaged(position: UInt64, finding: String)
    /// The index of a sealed segment is missing or wrong. The next start of the hub builds a missing one again.
    case badIndex
    case missingSegment
    /// The segment does not begin at the offset at which the previous one ends.
    case discontinuity(expected: UInt64, found: UInt64)

    /// True if something that was durable is lost or cannot be trusted.
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
    /// Summary of the entries that can be read; nil if the header cannot be read.
    public var summary: SegmentSummary?
    public var problems: [EventLogProblem] = []
}

/// Verifier that checks every checksum of a log. It changes nothing and may run beside a writer.
public enum EventLogVerifier {
    /// Checks all segments and returns a report about each.
    ///
    /// - Parameters:
    ///   - look: receives the number of the segment, the header and the payload of each entry that can be read.
    ///   - progress: receives, after each segment, the number of segments checked so far and the number of all.
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

    /// Cuts off an unfinished write at the log's end, and changes nothing else. Takes the log's lock, so no writer may
    /// be running.
    public static func repair(_ directory: any StorageDirectory) throws(EventLogError) -> EventLogRecovery {
        let files = SegmentFiles(directory: directory)
        guard let last = try files.sequences().last, let (_, header) = try files.open(last) else {
            throw .missing(path: directory.path)
        }
        var options = EventLogOptions(source: header.source)
        // No space is reserved, because nothing will be written.
        options.segmentBytes = 0
        var opening = LogOpening(directory: directory, options: options)
        let lock = try opening.takeLock()
        defer { withExtendedLifetime(lock) {} }
        _ = try opening.recover(last)
        return opening.report
    }

    /// Returns a report that a segment is missing. It stands for all missing segments up to the next existing one.
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
        // Retention deleted the segment after the files were listed.
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
