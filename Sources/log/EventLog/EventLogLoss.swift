import Bytes
import System

/// What a damaged log loses when an operator gives up what cannot be read.
///
/// Whole segments up to the last damaged one are set aside: what follows them is whole, and who asks for what was before is
/// told that it is not there any more, as after retention. Where the damage is in the segment that was written to, that is
/// cut at the last whole transaction before it, and a gap says that something was lost there; it begins a new epoch,
/// because offsets behind the cut were given away before.
public struct EventLogLoss: Sendable, Equatable {
    /// Segments that go, oldest first.
    public var setAside: [SegmentReport] = []
    /// The last segment, cut behind what its summary says; without a summary nothing of it is left.
    public var cut: SegmentReport?
    /// The log as it will be; nil where nothing is left of it.
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

    /// From there on every sealed segment is whole and goes on where the one before ends.
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

/// A damaged log, locked, and the way on with it. Nothing is deleted: what goes is moved.
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
        // What is moved aside is read, too.
        _ = try ErasurePlan.finish(in: directory, EventLogOptions(source: 0))
        reports = try EventLogVerifier.verify(directory, progress: progress)
        loss = EventLogLoss(reports)
    }

    /// Does it. A crash at any moment leaves a log that is damaged still, or whole; then it can be called again.
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
        // The gap comes first: from then on nobody takes the cut segment for the log's end.
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

    /// What is whole of the segment, under the name of a spare: a crash leaves nothing that counts.
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
