import Bytes
import System

/// Part of a damaged log that is lost if an operator accepts that its unreadable bytes are given up.
///
/// All segments up to the last damaged sealed segment are set aside. The later segments are whole. A client that asks
/// for older entries is answered as if retention had deleted them. If the active segment is damaged, it is cut after
/// the last whole transaction before the damage. A gap entry then marks the loss and begins a new epoch, because
/// readers had already received offsets beyond the cut.
public struct EventLogLoss: Sendable, Equatable {
    /// Segments to set aside, oldest first.
    public var setAside: [SegmentReport] = []
    /// The active segment if it must be cut, at the end of its summary. If it has no summary, nothing of it is kept.
    public var cut: SegmentReport?
    /// First offset of the log after the repair; nil if nothing is kept.
    public var oldestOffset: UInt64?

    /// Computes the loss from the reports about all segments. Nil if the log is not damaged.
    init?(_ reports: [SegmentReport]) {
        guard let last = reports.last, reports.contains(where: \.isDamaged) else { return nil }
        let sealed = reports.dropLast()
        let firstKept = Self.firstKept(reports)
        let kept = reports.filter { $0.sequence >= firstKept && !$0.isMissing }
        setAside = sealed.filter { $0.sequence < firstKept && !$0.isMissing }
        if last.problems.contains(where: \.isUnreadable) {
            guard last.summary != nil || kept.count > 1 else {
                setAside.append(last)
                return
            }
            cut = last
        }
        oldestOffset = kept.first?.summary?.firstOffset ?? kept.dropFirst().first?.summary?.firstOffset
    }

    /// Returns the first segment from which all sealed segments are whole and each continues the one before.
    private static func firstKept(_ reports: [SegmentReport]) -> UInt64 {
        var firstKept = reports[0].sequence
        for (report, next) in zip(reports, reports.dropFirst()) where report.isMissing || report.isUnreadable {
            firstKept = next.sequence
        }
        for report in reports where report.isDiscontinuous { firstKept = max(firstKept, report.sequence) }
        return firstKept
    }
}

extension SegmentReport {
    public var isDamaged: Bool { problems.contains(where: \.isDamage) }
    fileprivate var isMissing: Bool { problems.contains(.missingSegment) }
    fileprivate var isUnreadable: Bool { problems.contains(where: \.isUnreadable) }
    fileprivate var isDiscontinuous: Bool {
        problems.contains { if case .discontinuity = $0 { true } else { false } }
    }
}

extension EventLogProblem {
    fileprivate var isUnreadable: Bool { if case .damaged = self { true } else { false } }
}

/// Repair of a damaged log, which stays locked during the repair. Files are moved to another place, not deleted.
public final class EventLogSalvage {
    private let directory: any StorageDirectory
    private let lock: any StorageLock
    private let reports: [SegmentReport]
    /// Loss that the repair causes; nil if the log is not damaged.
    public let loss: EventLogLoss?

    /// Takes the log's lock, so no writer may be running, and checks every checksum.
    public init(
        _ directory: any StorageDirectory, progress: (Int, Int) -> Void = { _, _ in }
    ) throws(EventLogError) {
        self.directory = directory
        let opening = LogOpening(directory: directory, options: EventLogOptions(source: 0))
        lock = try opening.takeLock()
        // An unfinished erasure is finished first, so that segments that are set aside do not keep the bytes.
        _ = try ErasurePlan.finish(in: directory, EventLogOptions(source: 0))
        reports = try EventLogVerifier.verify(directory, progress: progress)
        loss = EventLogLoss(reports)
    }

    /// Performs the repair. After a crash at any moment, the log is either still damaged or whole, and the call can be
    /// repeated.
    ///
    /// - Parameters:
    ///   - gap: returns the payload of the gap entry after a cut. Its argument is the LSN that the log has reached
    ///     before the cut.
    ///   - moveAside: moves a file from the log's directory to another place.
    public func perform(
        options: EventLogOptions, gap: (UInt64) -> [UInt8], moveAside: (String) throws(SystemError) -> Void
    ) throws(EventLogError) {
        guard let loss else { return }
        if let cut = loss.cut { try replace(cut, options, gap, moveAside) }
        try reading { () throws(SystemError) in
            for report in loss.setAside {
                let names = try directory.names()
                for name in LogFile.all(of: report.sequence)
                where names.contains(name) { try moveAside(name) }
            }
            try directory.sync()
        }
    }

    private func replace(
        _ cut: SegmentReport, _ options: EventLogOptions, _ gap: (UInt64) -> [UInt8],
        _ moveAside: (String) throws(SystemError) -> Void
    ) throws(EventLogError) {
        let before = reports.last { $0.sequence < cut.sequence }?.summary
        guard let end = cut.summary ?? before.map({ SegmentSummary(header(after: $0, $0.epoch, options)) }) else {
            preconditionFailure("a segment is cut where something is left before the cut")
        }
        // The gap is written first. From then on, no reader takes the end of the cut segment for the end of the log.
        let payload = gap(end.lastLSN)
        var epoch = options.newEpoch()
        while reports.contains(where: { $0.summary?.epoch == epoch }) { epoch = options.newEpoch() }
        let next = header(after: end, epoch, options)
        _ = try failing { () throws(EventLogFailure) in
            try SegmentMaker(directory: directory, bytes: 0)
                .make(next, on: nil, gap: Self.entry(payload, at: options.now()))
        }
        try reading { () throws(SystemError) in
            try directory.sync()
            try copyWhole(of: cut, end)
            try moveAside(LogFile.segment(cut.sequence))
            try directory.rename(LogFile.spare, to: LogFile.segment(cut.sequence))
            try directory.sync()
        }
    }

    private static func entry(_ payload: [UInt8], at time: Int64) -> FirstEntry {
        var writer = ByteWriter(capacity: payload.count)
        writer.append(payload)
        return FirstEntry(time: time, payload: writer)
    }

    private func header(
        after last: SegmentSummary, _ epoch: UInt64, _ options: EventLogOptions
    ) -> SegmentHeader {
        SegmentHeader(
            epoch: epoch, sequence: last.sequence + 1, baseOffset: last.endOffset, baseLSN: last.lastLSN,
            created: options.now(), source: last.header.source)
    }

    /// Copies the whole transactions of the segment into a file with the name of a spare segment. After a crash, such a
    /// file is ignored.
    private func copyWhole(of cut: SegmentReport, _ end: SegmentSummary) throws(SystemError) {
        let copy = try directory.open(LogFile.spare, for: .creating)
        var header = ByteWriter(capacity: SegmentHeader.byteCount)
        end.header.append(to: &header)
        try copy.write(header.bytes, at: 0)
        var at = UInt64(SegmentHeader.byteCount)
        if at < end.bytes {
            let file = try directory.open(LogFile.segment(cut.sequence), for: .reading)
            var buffer = ReadBuffer(capacity: 1 << 20)
            while at < end.bytes {
                try buffer.fill(from: file, at: at, wanted: 1 << 20, limit: end.bytes)
                let count = buffer.available(at: at)
                if count == 0 { break }
                try copy.write(buffer.bytes(count, at: at), at: at)
                at += UInt64(count)
            }
        }
        try copy.sync()
    }
}
