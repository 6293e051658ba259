import Bytes
import Diagnostics
import EventLog
import System

/// The log's new entries as one loop reads them. It stands on an entry until it is told to go on, so
/// that a change can wait for the catalog.
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

    /// Another reader, from a transaction's first entry on.
    func reader(at entry: EventLogEntry) throws(EventLogError) -> EventLogReader {
        try EventLogReader(directory: directory, end: end, from: .offset(entry.offset))
    }

    /// Another reader, of what comes behind the entry at hand.
    func ahead() -> EventLogReader { reader.ahead() }

    /// What comes next, where it stands between entries.
    var position: EventLogPosition { reader.position }

    /// Number of the segment that is being read.
    var segment: UInt64 { reader.segmentHeader.sequence }

    deinit { end.removeWaker(waker) }

    enum Step {
        case entry(EventLogEntry)
        /// There is none for now.
        case none
        /// A segment has nothing for anybody.
        case passedOver
    }

    /// The entry to deal with; the same one again until `finish`.
    mutating func next() throws(EventLogError) -> Step {
        if !isOnEntry { isOnEntry = try reader.next() }
        return isOnEntry ? .entry(reader.entry) : .none
    }

    /// The same, passing over segments of which that says so.
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

    /// The entry that is being dealt with.
    var atHand: EventLogEntry? { isOnEntry ? reader.entry : nil }

    var payload: RawSpan {
        @_lifetime(borrow self)
        get { reader.payload }
    }
}

extension EventLogReader {
    /// Moves a reader that looks ahead to the next entry. False also if the log does not read there now: the entry is read when
    /// its turn comes.
    mutating func looksAhead() -> Bool { (try? next()) ?? false }
}
