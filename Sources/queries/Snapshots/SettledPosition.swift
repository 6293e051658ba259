import Bytes
import EventLog
import Synchronization
import System

/// Position in the event log before which every commit is visible to all later snapshots.
///
/// PostgreSQL logs a commit before others can see it: a moment before, or long before if the commit waits for a
/// standby. Neither time nor later commits prove that it is visible; only a snapshot that sees it does.
///
/// Read it before taking a snapshot. It may be used from any thread. A small file beside the log's segments stores it,
/// so that after a restart the hub need not wait until every earlier transaction has ended.
final class SettledPosition: Sendable {
    static let name = "settled"
    private static let unfinished = "settled.new"
    private static let maximumBytes = 64

    private struct Known {
        var position: EventLogPosition?
        var isRead = false
    }

    private let known = Mutex(Known())

    /// Returns the position, or nil while none is known. `end` is the log's end.
    func current(in directory: any StorageDirectory, end: EventLogPosition) -> EventLogPosition? {
        known.withLock { known in
            if !known.isRead {
                known.isRead = true
                // The file may belong to an earlier log that was removed. It is then invalid for the present log.
                known.position = Self.read(in: directory).flatMap {
                    $0.epoch == end.epoch && $0.offset <= end.offset ? $0 : nil
                }
            }
            return known.position
        }
    }

    /// Moves the position forward. If the file cannot be written, it keeps its older position, which is still valid.
    func advance(to position: EventLogPosition, in directory: any StorageDirectory) {
        known.withLock { known in
            guard known.position.map({ $0.offset < position.offset || $0.epoch != position.epoch }) ?? true,
                known.position?.offset ?? 0 <= position.offset
            else { return }
            known.position = position
            try? Self.write(position, in: directory)
        }
    }

    private static func read(in directory: any StorageDirectory) -> EventLogPosition? {
        guard let file = try? directory.open(name, for: .reading) else { return nil }
        var bytes = ByteWriter(capacity: maximumBytes)
        // SAFETY: `read` initialises as many bytes of the room as it says.
        let count = unsafe try? bytes.append(upTo: maximumBytes) { room throws(SystemError) in
            unsafe try file.read(into: room, at: 0)
        }
        guard count != nil, bytes.bytes.text.last == "\n" else { return nil }
        return EventLogPosition(bytes.bytes.text.dropLast())
    }

    /// Writes the position without a sync: an older position is also valid, and an empty file after a power cut counts
    /// as none.
    private static func write(_ position: EventLogPosition, in directory: any StorageDirectory) throws(SystemError) {
        var text = ByteWriter(capacity: maximumBytes)
        text.append("\(position)\n")
        let file = try directory.open(unfinished, for: .creating)
        try file.write(text.bytes, at: 0)
        try directory.rename(unfinished, to: name)
    }
}
