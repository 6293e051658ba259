import Catalog
import Change
import Diagnostics
import EventLog
import System

/// Finder of the first commit in the log that a snapshot does not see. It belongs to one thread.
///
/// A snapshot does not show everything up to some place in the log, since a commit is logged before it is visible. It shows
/// everything before the first commit that it does not see.
struct CommitTail {
    let open: @Sendable () throws(SystemError) -> any StorageDirectory
    let end: @Sendable () -> EventLogEnd?
    let settled: SettledPosition
    /// Time to wait for the transactions that are running when a snapshot is asked for.
    var patience = Limits.snapshotSettlingPatience

    /// Place in the log from which to look for commits that a snapshot does not see, found before the snapshot is taken.
    struct Beginning {
        fileprivate let directory: any StorageDirectory
        fileprivate let end: EventLogEnd
        /// Position before which all commits are visible; nil for the log's first entry.
        fileprivate let settled: EventLogPosition?
    }

    /// Questions to PostgreSQL about its transactions.
    protocol Asking {
        /// Returns a transaction number above that of every transaction that has begun.
        func nextTransaction() throws(SnapshotRefusal) -> UInt64
        /// Returns the number below which every transaction has ended, for all to see.
        func oldestRunning() throws(SnapshotRefusal) -> UInt64
    }

    /// Finds the place to begin before a snapshot is taken. Throws if a commit may be hidden in a part that retention has
    /// removed.
    func beginning(asking server: some Asking) throws -> Beginning {
        guard let end = end() else { throw SnapshotRefusal.logNotBegun }
        let directory = try open()
        let goal = end.state.position
        let known = settled.current(in: directory, end: goal)
        if let known, known.epoch == goal.epoch,
            goal.offset - min(goal.offset, known.offset) <= Limits.snapshotLookbackChanges,
            try EventLogReader.oldestOffset(in: directory, end: end) <= known.offset
        {
            return Beginning(directory: directory, end: end, settled: known)
        }
        // Whatever the log has by now has a lower number than this.
        let next = try server.nextTransaction()
        let deadline = Clock.monotonicNanoseconds() + patience.wholeNanoseconds
        repeat {
            if try server.oldestRunning() >= next {
                settled.advance(to: goal, in: directory)
                return Beginning(directory: directory, end: end, settled: goal)
            }
            BackgroundThread.rest(nanoseconds: Limits.snapshotSettlingInterval.wholeNanoseconds)
        } while Clock.monotonicNanoseconds() < deadline
        // Some transaction runs for long. It may be one that the log has, and that waits for a standby.
        let oldest = try EventLogReader.oldestOffset(in: directory, end: end)
        // Before a log begins, PostgreSQL makes its slot, and for that waits until every running transaction has ended.
        guard oldest <= known?.offset ?? 0 else { throw SnapshotRefusal.unsettled }
        return Beginning(directory: directory, end: end, settled: known)
    }

    /// Returns the position of the first commit that `seen` does not see, or the log's end. `seen` is of a snapshot that was
    /// taken after `beginning` was found and before this call.
    func position(
        notSeenBy seen: VisibleTransactions, from beginning: Beginning, while isWanted: () -> Bool
    ) throws -> EventLogPosition {
        let goal = beginning.end.state.position
        let found = try firstUnseen(by: seen, from: beginning, upTo: goal, while: isWanted) ?? goal
        settled.advance(to: found, in: beginning.directory)
        return found
    }

    private func firstUnseen(
        by seen: VisibleTransactions, from beginning: Beginning, upTo goal: EventLogPosition, while isWanted: () -> Bool
    ) throws -> EventLogPosition? {
        var reader = try EventLogReader(
            directory: beginning.directory, end: beginning.end, from: .offset(beginning.settled?.offset ?? 0))
        var continues = false
        while try reader.next() {
            guard isWanted() else { throw SnapshotRefusal.cancelled }
            let entry = reader.entry
            // The gap may hide a waiting commit.
            if entry.kind == .gap, entry.epoch != beginning.settled?.epoch { throw SnapshotRefusal.unsettled }
            guard entry.kind == .transaction else { continue }
            if entry.offset >= goal.offset { break }
            defer { continues = entry.isContinued }
            if !continues, !seen.contains(try TransactionPart(reader.payload).xid) {
                return EventLogPosition(epoch: entry.epoch, offset: entry.offset)
            }
        }
        return nil
    }
}
