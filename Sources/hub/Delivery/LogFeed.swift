import Bytes
import Diagnostics
import EventLog
import System

/// Reader of the log's new entries for one loop. The reader stays on an entry until `finish`, so that the pipeline can
/// wait for what the entry needs.
struct LogFeed: ~Copyable {
    private var reader: EventLogReader
    private let directory: any StorageDirectory
    private let end: EventLogEnd
    private let waker: UInt64
    private var isOnEntry = false

    init(
        _ directory: any StorageDirectory, end: EventLogEnd, from start: EventLogStart, ringing bell: Wake
    ) throws(EventLogError) {
        reader = try EventLogReader(directory: directory, end: end, from: start)
        self.directory = directory
        self.end = end
        waker = end.addWaker { bell.ring() }
    }

    /// Returns another reader that starts at the given entry.
    func reader(at entry: EventLogEntry) throws(EventLogError) -> EventLogReader {
        try EventLogReader(directory: directory, end: end, from: .offset(entry.offset))
    }

    /// Returns another reader that starts after the current entry.
    func ahead() -> EventLogReader { reader.ahead() }

    /// Position of the next entry of the log. Valid only between entries.
    var position: EventLogPosition { reader.position }

    /// Number of the log segment that the reader is in.
    var segment: UInt64 { reader.segmentHeader.sequence }

    deinit { end.removeWaker(waker) }

    enum Step {
        case entry(EventLogEntry)
        /// The log has no further entry yet.
        case none
        /// The reader skipped a segment that contains nothing for any client.
        case passedOver
    }

    /// Returns the log's current entry, which stays the same until `finish`.
    mutating func next() throws(EventLogError) -> Step {
        if !isOnEntry { isOnEntry = try reader.next() }
        return isOnEntry ? .entry(reader.entry) : .none
    }

    /// Returns the current entry. Before that, skips a segment for which `isUseless` returns true.
    mutating func next(passingOver isUseless: (SealedSegment) -> Bool) throws(EventLogError) -> Step {
        if isOnEntry { return .entry(reader.entry) }
        switch try reader.next(passingOver: isUseless) {
        case .none: return .none
        case .passedOver: return .passedOver
        case .entry:
            isOnEntry = true
            return .entry(reader.entry)
        }
    }

    mutating func finish() { isOnEntry = false }

    /// Log entry that the reader is on; nil between entries.
    var currentEntry: EventLogEntry? { isOnEntry ? reader.entry : nil }

    var payload: RawSpan {
        @_lifetime(borrow self)
        get { reader.payload }
    }
}

extension EventLogReader {
    /// Moves a reader that looks ahead to the next entry. Returns false at the log's end, and also if the log cannot be
    /// read: the pipeline then finds the error when it gets there.
    mutating func looksAhead() -> Bool { (try? next()) ?? false }
}
