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

    deinit { end.removeWaker(waker) }

    /// The entry to deal with; nil when there is none for now. The same one again until `finish`.
    mutating func entry() throws(EventLogError) -> EventLogEntry? {
        if isOnEntry { return reader.entry }
        guard try reader.next() else { return nil }
        isOnEntry = true
        return reader.entry
    }

    mutating func finish() { isOnEntry = false }

    /// The entry that is being dealt with.
    var atHand: EventLogEntry? { isOnEntry ? reader.entry : nil }

    var payload: RawSpan {
        @_lifetime(borrow self)
        get { reader.payload }
    }
}
