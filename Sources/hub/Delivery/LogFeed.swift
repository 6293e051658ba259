import Bytes
import Diagnostics
import EventLog
import System

/// Reader of the log's new entries for one loop. The reader stays on an entry until `finish`, so that a change can wait
/// for the catalog.
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

    /// Returns another reader, which starts at a transaction's first entry.
    func reader(at entry: EventLogEntry) throws(EventLogError) -> EventLogReader {
        try EventLogReader(directory: directory, end: end, from: .offset(entry.offset))
    }

    /// Returns another reader, for the entries after the current one.
    func ahead() -> EventLogReader { reader.ahead() }

    /// Position of the next entry, if the feed is between entries.
    var position: EventLogPosition { reader.position }

    /// Number of the segment that is being read.
    var segment: UInt64 { reader.segmentHeader.sequence }

    deinit { end.removeWaker(waker) }

    enum Step {
        case entry(EventLogEntry)
        /// No further entry exists for now.
        case none
        /// The feed has skipped a segment that has nothing for any client.
        case passedOver
    }

    /// Returns the entry to process, which stays the same until `finish`.
    mutating func next() throws(EventLogError) -> Step {
        if !isOnEntry { isOnEntry = try reader.next() }
        return isOnEntry ? .entry(reader.entry) : .none
    }

    /// Returns the entry to process; skips segments for which `isUseless` returns true.
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

    /// Entry that is being processed; nil between entries.
    var atHand: EventLogEntry? { isOnEntry ? reader.entry : nil }

    var payload: RawSpan {
        @_lifetime(borrow self)
        get { reader.payload }
    }
}

extension EventLogReader {
    /// Moves a reader that looks ahead to the next entry. Returns false also if the log cannot be read there now: the
    /// entry is read when its turn comes.
    mutating func looksAhead() -> Bool { (try? next()) ?? false }
}
