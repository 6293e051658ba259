import Change
import EventLog
import System

/// Window of the log, as limits of offsets and times.
public struct HistoryWindow: Sendable, Equatable {
    /// Position where reading begins. Entries before the window are skipped.
    public internal(set) var start: EventLogStart = .oldest
    public internal(set) var firstOffset: UInt64 = 0
    public internal(set) var endOffset: UInt64 = .max
    public internal(set) var firstTime: Int64 = .min
    /// End time of the window in microseconds since 1970, exclusive like `endOffset`.
    public internal(set) var endTime: Int64 = .max
    /// Last segment that can have entries of the window.
    public internal(set) var lastSegment: UInt64 = .max

    public func contains(offset: UInt64, time: Int64) -> Bool {
        offset >= firstOffset && offset < endOffset && time >= firstTime && time < endTime
    }
}

extension HistoryWindow {
    /// Returns the part of the window in a range of offsets.
    public func part(_ offsets: Range<UInt64>) -> HistoryWindow {
        var part = self
        part.firstOffset = max(firstOffset, offsets.lowerBound)
        part.endOffset = max(part.firstOffset, min(endOffset, offsets.upperBound))
        part.start = .offset(part.firstOffset)
        return part
    }
}

/// Reason why the ends of a window cannot be found in the log.
public enum HistoryError: Error, Sendable, Equatable {
    case outsideRetention(asked: HistoryBound, oldestOffset: UInt64, oldestTime: Int64)
    /// The log has no transaction with this number.
    case noTransaction(xid: UInt32)
}

extension HistoryLog {
    /// Finds the ends of a window. Times stay times, because the log is not in the order of commit times. All other
    /// bounds become offsets.
    public func window(from: HistoryBound?, to: HistoryBound?) throws -> HistoryWindow {
        if from == nil, to == nil {
            // Only checks that there are segments. Listing their contents would read the last one.
            _ = try EventLogReader.oldestOffset(in: directory, end: nil)
            return HistoryWindow()
        }
        let segments = try segments()
        guard let oldest = segments.first else { throw EventLogError.missing(path: directory.path) }
        var window = HistoryWindow()
        if let from { try begin(&window, at: from, oldest, segments) }
        if let to { try end(&window, at: to, segments) }
        return window
    }

    private func begin(
        _ window: inout HistoryWindow, at bound: HistoryBound, _ oldest: SegmentSummary, _ segments: [SegmentSummary]
    ) throws {
        if oldest.isBegunAfter(bound) {
            throw HistoryError.outsideRetention(
                asked: bound, oldestOffset: oldest.firstOffset, oldestTime: oldest.begin)
        }
        switch bound {
        case .oldest: break
        case .time(let time):
            window.start = .time(time)
            window.firstTime = time
        case .end, .offset, .lsn, .xid:
            window.firstOffset = try offset(of: bound, segments)
            window.start = .offset(window.firstOffset)
        }
    }

    private func end(_ window: inout HistoryWindow, at bound: HistoryBound, _ segments: [SegmentSummary]) throws {
        switch bound {
        case .time(let time):
            window.endTime = time
            window.lastSegment = segments.last { $0.minimumTime < time }?.sequence ?? 0
            // The writer may still append entries with an earlier time to the last segment.
            if window.lastSegment == segments.last?.sequence { window.lastSegment = .max }
        case .oldest, .end, .offset, .lsn, .xid: window.endOffset = try offset(of: bound, segments)
        }
    }

    private func offset(of bound: HistoryBound, _ segments: [SegmentSummary]) throws -> UInt64 {
        switch bound {
        case .oldest: return segments.first?.firstOffset ?? 0
        case .end, .time: return segments.last?.endOffset ?? 0
        case .offset(let offset): return offset
        case .lsn(let lsn): return try firstOffset(atOrAfter: lsn) ?? segments.last?.endOffset ?? 0
        case .xid(let xid):
            guard let found = try newestTransaction(xid: xid) else { throw HistoryError.noTransaction(xid: xid) }
            return found.offsets.lowerBound
        }
    }

    /// Returns the first offset of the first transaction whose commit record begins at this LSN or later.
    private func firstOffset(atOrAfter lsn: LSN) throws -> UInt64? {
        var reader = try EventLogReader(directory: directory, from: .lsn(lsn.rawValue))
        while try reader.next() {
            guard reader.entry.kind == .transaction else { continue }
            if try TransactionHead(reader).info.commitLSN >= lsn { return reader.entry.offset }
        }
        return nil
    }
}

extension SegmentSummary {
    /// Earliest time that the summary shows for the segment's entries, in microseconds since 1970. For an empty
    /// segment, it is the time of creation.
    public var begin: Int64 {
        if isEmpty { return header.created }
        // Messages outside of transactions have no time.
        return minimumTime > 0 ? minimumTime : min(header.created, maximumTime)
    }

    /// True if the log no longer has the place that the bound names. Must be called for the oldest segment.
    fileprivate func isBegunAfter(_ bound: HistoryBound) -> Bool {
        switch bound {
        case .oldest, .end, .xid: false
        case .offset(let offset): offset < firstOffset
        // A log imported from a window also begins with segment 1, but not with the first change.
        case .time(let time): (sequence > 1 || firstOffset > 0) && time < begin
        case .lsn(let lsn): (sequence > 1 || firstOffset > 0) && lsn.rawValue < header.baseLSN
        }
    }
}
