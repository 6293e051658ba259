import Bytes
import System

/// Part of a damaged log that is lost when an operator gives up the unreadable bytes.
///
/// All segments up to the last damaged sealed one are set aside: the segments after it are whole. A client that asks
/// for older entries is told that they are gone, as after retention. If the damage is in the active segment, that
/// segment is cut at the last whole transaction before the damage. A gap entry after the cut marks the loss. The gap
/// begins a new epoch, because offsets behind the cut had already been handed out.
public struct EventLogLoss: Sendable, Equatable {
    /// Segments to set aside, oldest first.
    public var setAside: [SegmentReport] = []
    /// The last segment, to be cut at the end of its summary. Without a summary, nothing of the segment remains.
    public var cut: SegmentReport?
    /// First offset of the log after the repair; nil if nothing of the log remains.
    public var oldestOffset: UInt64?

    /// Nil if the log has no damage.
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

    /// Returns the first segment from which on every sealed segment is whole and continues the one before.
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

/// Repair of a damaged log that is locked meanwhile. Nothing is deleted: files are moved to another place.
public final class EventLogSalvage {
    private let directory: any StorageDirectory
    private let lock: any StorageLock
    private let reports: [SegmentReport]
    /// Nil if there is nothing to give up.
    public let loss: EventLogLoss?

    /// Takes the log's lock, so no writer may run, and reads every checksum.
    public init(
        _ directory: any StorageDirectory, progress: (Int, Int) -> Void = { _, _ in }
    ) throws(EventLogError) {
        self.directory = directory
        let opening = LogOpening(directory: directory, options: EventLogOptions(source: 0))
        lock = try opening.takeLock()
        // Segments that are moved aside are read too, so an unfinished erasure is completed first.
        _ = try ErasurePlan.finish(in: directory, EventLogOptions(source: 0))
        reports = try EventLogVerifier.verify(directory, progress: progress)
        loss = EventLogLoss(reports)
    }

    /// Performs the repair. After a crash at any moment the log is either still damaged or whole; the call can be
    /// repeated.
    ///
    /// - Parameters:
    ///   - gap: the payload of the gap that follows a cut, from the LSN that is reached before it.
    ///   - moveAside: takes a file of the directory to another place.
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
        // The gap comes first: from then on, no reader takes the cut segment for the log's end.
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

    /// Copies the whole transactions of the segment into a file named like a spare, which has no meaning after a crash.
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
