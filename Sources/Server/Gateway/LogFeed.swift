import Bytes
import Diagnostics
import EventLog
import System

/// The log's new entries as one loop reads them, from its end on. It stands on an entry until it is told to go on, so
/// that a change can wait for the catalog.
struct LogFeed: ~Copyable {
    private var reader: EventLogReader
    private let end: EventLogEnd
    private let waker: UInt64
    private var isOnEntry = false

    /// A loop has a descriptor table of its own, so it opens the files itself.
    init(logDirectory: String, end: EventLogEnd, ringing bell: Wake) throws {
        reader = try EventLogReader(directory: DiskDirectory(logDirectory), end: end, from: .end)
        self.end = end
        waker = end.addWaker { bell.ring() }
    }

    deinit { end.removeWaker(waker) }

    /// The entry to deal with; nil when there is none for now. The same one again until `finish`.
    mutating func entry() throws(EventLogError) -> EventLogEntry? {
        if isOnEntry { return reader.entry }
        guard try reader.next() else { return nil }
        isOnEntry = true
        return reader.entry
    }

    mutating func finish() { isOnEntry = false }

    var payload: RawSpan {
        @_lifetime(borrow self)
        get { reader.payload }
    }
}
