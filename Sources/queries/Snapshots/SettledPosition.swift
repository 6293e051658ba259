import Bytes
import EventLog
import Synchronization
import System

/// Position in the event log before which every commit is visible to all later snapshots.
///
/// PostgreSQL writes a commit to the WAL before other sessions can see it. A commit that waits for a standby can stay
/// invisible for long. Neither time nor later commits prove that it is visible; only a snapshot that shows it does.
///
/// The position must be read before a snapshot is taken. Any thread may use it. It is stored in a small file in the
/// log's directory. After a restart, the hub thus need not wait until every earlier transaction has ended.
final class SettledPosition: Sendable {
    static let name = "settled"
    private static let unfinished = "settled.new"
    private static let maximumBytes = 64

    private struct Known {
        var position: EventLogPosition?
        var isRead = false
    }

    private let known = Mutex(Known())

    /// Returns the position; nil if none is known. `end` is the end of the log.
    func current(in directory: any StorageDirectory, end: EventLogPosition) -> EventLogPosition? {
        known.withLock { known in
            if !known.isRead {
                known.isRead = true
                // The file may be left from an earlier log that was removed. Its position is then not valid.
                known.position = Self.read(in: directory).flatMap {
                    $0.epoch == end.epoch && $0.offset <= end.offset ? $0 : nil
                }
            }
            return known.position
        }
    }

    /// Moves the position forward. If the file cannot be written, it keeps an older position, which is still valid.
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

    /// Writes the position without syncing the file. After a power failure the file may have an older position, which
    /// is also valid, or be empty, which counts as no position.
    private static func write(_ position: EventLogPosition, in directory: any StorageDirectory) throws(SystemError) {
        var text = ByteWriter(capacity: maximumBytes)
        text.append("\(position)\n")
        let file = try directory.open(unfinished, for: .creating)
        try file.write(text.bytes, at: 0)
        try directory.rename(unfinished, to: name)
    }
}
