import Catalog
import Change
import Diagnostics
import EventLog
import System

/// Follows the log's end for its commits, whenever it is asked. Belongs to one thread.
final class CommitTail {
    private let open: @Sendable () throws(SystemError) -> any StorageDirectory
    private let end: @Sendable () -> EventLogEnd?
    private var reader: EventLogReader?
    private var recent = RecentCommits(maximum: Limits.snapshotRecentCommits)
    private var continues = false
    private var readUpTo: UInt64 = 0

    init(
        _ open: @escaping @Sendable () throws(SystemError) -> any StorageDirectory,
        _ end: @escaping @Sendable () -> EventLogEnd?
    ) {
        self.open = open
        self.end = end
    }

    /// Before the first transaction of the log that was not seen; nil while the log has not begun. To be asked for after the
    /// snapshot was taken, at `time`: whatever it does not show is behind this.
    func position(notSeenBy seen: VisibleTransactions, at time: Int64) throws -> EventLogPosition? {
        guard let end = end() else { return nil }
        let goal = end.state.position
        do {
            try read(upTo: goal, end, time)
        } catch {
            // Retention overtook it, or the file is damaged: next time it begins anew.
            reader = nil
            throw error
        }
        guard let first = recent.firstUnseen(by: seen), first < goal.offset else { return goal }
        return EventLogPosition(epoch: goal.epoch, offset: first)
    }

    private func read(upTo goal: EventLogPosition, _ end: EventLogEnd, _ time: Int64) throws {
        var reader = try self.reader.take() ?? begin(upTo: goal, end, time)
        while readUpTo < goal.offset, try reader.next() {
            let entry = reader.entry
            switch entry.kind {
            case .gap:
                recent.forgetAll()
                continues = false
            case .transaction:
                if !continues { recent.note(try TransactionPart(reader.payload).xid, at: entry.offset) }
                continues = entry.isContinued
                readUpTo = entry.offset + UInt64(entry.changeCount)
            default: break
            }
        }
        self.reader = consume reader
    }

    /// So far back that nothing before can still be on its way: some time, and some changes.
    private func begin(
        upTo goal: EventLogPosition, _ end: EventLogEnd, _ time: Int64
    ) throws -> EventLogReader {
        recent.forgetAll()
        continues = false
        readUpTo = 0
        let back = Limits.snapshotLookback
        let directory = try open()
        let oldest = try EventLogReader.oldestOffset(in: directory, end: end)
        let byTime = try EventLogReader(
            directory: directory, end: end, from: .time(time - back.components.seconds * 1_000_000))
        let byCount = goal.offset - min(goal.offset, Limits.snapshotLookbackChanges)
        let offset = max(oldest, min(byTime.position.offset, byCount))
        return try EventLogReader(directory: directory, end: end, from: .offset(offset))
    }
}
