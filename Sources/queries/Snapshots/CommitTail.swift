import Catalog
import Change
import Diagnostics
import EventLog
import System

/// Finder of the first commit in the log that a snapshot does not see. Used by one thread.
///
/// A commit is logged before it is visible, so a snapshot may miss commits before the log's end. The snapshot shows
/// every commit before the first one that it does not see.
struct CommitTail {
    let open: @Sendable () throws(SystemError) -> any StorageDirectory
    let end: @Sendable () -> EventLogEnd?
    let settled: SettledPosition
    /// Time to wait for the transactions that are running when a snapshot is asked for.
    var patience = Limits.snapshotSettlingPatience

    /// Place in the log from which to search for commits that a snapshot does not see. Determined before the snapshot
    /// is taken.
    struct Beginning {
        fileprivate let directory: any StorageDirectory
        fileprivate let end: EventLogEnd
        /// Position before which all commits are visible; nil for the log's first entry.
        fileprivate let settled: EventLogPosition?
    }

    /// Queries to PostgreSQL about its transactions.
    protocol Asking {
        /// Returns a transaction number above that of every transaction that has begun.
        func nextTransaction() throws(SnapshotRefusal) -> UInt64
        /// Returns the number below which every transaction has ended and is visible to all.
        func oldestRunning() throws(SnapshotRefusal) -> UInt64
    }

    /// Determines the place to begin, before a snapshot is taken. Throws if retention may have deleted a commit that is
    /// not visible yet.
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
        // All transactions that the log contains now have lower numbers.
        let next = try server.nextTransaction()
        let deadline = Clock.monotonicNanoseconds() + patience.wholeNanoseconds
        repeat {
            if try server.oldestRunning() >= next {
                settled.advance(to: goal, in: directory)
                return Beginning(directory: directory, end: end, settled: goal)
            }
            BackgroundThread.rest(nanoseconds: Limits.snapshotSettlingInterval.wholeNanoseconds)
        } while Clock.monotonicNanoseconds() < deadline
        // Some transaction has been running for long. It may be one that is in the log and waits for a standby.
        let oldest = try EventLogReader.oldestOffset(in: directory, end: end)
        // When a log begins, PostgreSQL creates its slot only after every running transaction has ended.
        guard oldest <= known?.offset ?? 0 else { throw SnapshotRefusal.unsettled }
        return Beginning(directory: directory, end: end, settled: known)
    }

    /// Returns the position of the first commit that `seen` does not see, or the log's end. The snapshot of `seen` must
    /// have been taken after `beginning` was determined and before this call.
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
            // A commit that is not visible yet may lie in the gap.
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
