import Catalog
import Change
import Diagnostics
import EventLog
import System

/// Search for the position from which the log may have changes that a snapshot does not show. One thread uses it.
///
/// PostgreSQL writes a commit to the WAL before the commit is visible, so a snapshot may lack commits that the log
/// already has. The search finds the first such commit. The snapshot shows every commit before it.
struct CommitTail {
    let open: @Sendable () throws(SystemError) -> any StorageDirectory
    let end: @Sendable () -> EventLogEnd?
    let settled: SettledPosition
    /// Maximum duration of waiting for transactions that were running when the snapshot was requested.
    var patience = Limits.snapshotSettlingPatience

    /// Position in the log at which the search for unseen commits begins. It must be determined before the snapshot is
    /// taken.
    struct Beginning {
        fileprivate let directory: any StorageDirectory
        fileprivate let end: EventLogEnd
        /// Position before which all commits are visible; nil if the search must begin at the log's first entry.
        fileprivate let settled: EventLogPosition?
    }

    /// Queries to PostgreSQL about its running transactions.
    protocol Asking {
        /// Returns a transaction number that is higher than that of every transaction begun so far.
        func nextTransaction() throws(SnapshotRefusal) -> UInt64
        /// Returns the number below which every transaction has ended and is visible to all.
        func oldestRunning() throws(SnapshotRefusal) -> UInt64
    }

    /// Determines where the search begins, before a snapshot is taken. Throws if retention may have deleted a commit
    /// that is not visible yet.
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
        // All transactions that the log has at this moment have lower numbers.
        let next = try server.nextTransaction()
        let deadline = Clock.monotonicNanoseconds() + patience.wholeNanoseconds
        repeat {
            if try server.oldestRunning() >= next {
                settled.advance(to: goal, in: directory)
                return Beginning(directory: directory, end: end, settled: goal)
            }
            BackgroundThread.rest(nanoseconds: Limits.snapshotSettlingInterval.wholeNanoseconds)
        } while Clock.monotonicNanoseconds() < deadline
        // Some transaction has been running for long. It may be in the log already and be waiting for a standby.
        let oldest = try EventLogReader.oldestOffset(in: directory, end: end)
        // When a log begins, PostgreSQL creates the slot only after every running transaction has ended.
        guard oldest <= known?.offset ?? 0 else { throw SnapshotRefusal.unsettled }
        return Beginning(directory: directory, end: end, settled: known)
    }

    /// Returns the position of the first commit that the snapshot `seen` does not show; the log's end if it shows all.
    /// The snapshot must have been taken after `beginning` was determined.
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
            // The gap may have lost a commit that is not visible yet.
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
