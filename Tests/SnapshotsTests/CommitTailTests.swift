import Bytes
import Catalog
import Change
import EventLog
import System
import TestSupport
import Testing

@testable import Snapshots

/// Tests of two results: the log position from which changes may be missing in a snapshot, and the later changes that
/// the snapshot has. They try every order in which commits may enter the log and become visible.
@Suite(.within(minutes: 1)) struct CommitTailTests {
    /// Database that consists only of transaction numbers, with the log that follows it.
    private final class Database: CommitTail.Asking {
        let directory: MemoryDirectory
        let writer: EventLogWriter
        private(set) var next: UInt64 = 100
        /// Transactions that other sessions do not see, because they are running or wait for a standby.
        private var hidden: Set<UInt64> = []
        private var lsn: UInt64 = 0x1000
        let settled: SettledPosition

        init(in directory: MemoryDirectory = MemoryDirectory()) throws {
            self.directory = directory
            var options = EventLogOptions(source: 1)
            options.segmentBytes = 4096
            options.preparesSegments = false
            options.retentionAge = nil
            writer = try EventLogWriter(directory: directory, options: options)
            settled = SettledPosition()
        }

        func nextTransaction() -> UInt64 {
            defer { next += 1 }
            return next
        }

        func oldestRunning() -> UInt64 { hidden.min() ?? next }

        var visible: VisibleTransactions? {
            let list = hidden.sorted().map { "\($0)" }.joined(separator: ",")
            return VisibleTransactions("\(oldestRunning()):\(next):\(list)")
        }

        func begin() -> UInt64 {
            let xid = nextTransaction()
            hidden.insert(xid)
            return xid
        }

        /// Writes a commit into the log that no snapshot shows yet.
        func log(_ xid: UInt64, changes: UInt32 = 1) throws {
            var payload = ByteWriter()
            let info = TransactionInfo(
                xid: UInt32(truncatingIfNeeded: xid), commitLSN: LSN(lsn), endLSN: LSN(lsn + 8), commitTime: 1)
            TransactionCodec.begin(info, firstIndex: 0, to: &payload)
            TransactionCodec.finish(endLSN: info.endLSN, changeCount: changes, in: &payload)
            lsn += 0x10
            try writer.rollIfNeeded(adding: payload.count)
            try writer.append(
                kind: .transaction, changeCount: changes, lsn: lsn, time: 1, payload: payload.bytes)
            try writer.flush()
        }

        func show(_ xid: UInt64) { hidden.remove(xid) }

        func commit(changes: UInt32 = 1) throws {
            let xid = begin()
            try log(xid, changes: changes)
            show(xid)
        }

        func tail(_ settled: SettledPosition? = nil) -> CommitTail {
            let (directory, end) = (directory, writer.end)
            return CommitTail(
                open: { directory }, end: { end }, settled: settled ?? self.settled,
                // Only the test's own steps end transactions, so waiting for them would not help.
                patience: .zero)
        }

        /// Returns the position at which a snapshot taken now continues.
        func position(_ settled: SettledPosition? = nil) throws -> UInt64 {
            let tail = tail(settled)
            let beginning = try tail.beginning(asking: self)
            return try tail.position(notSeenBy: try #require(visible), from: beginning, while: { true }).offset
        }
    }

    @Test(arguments: seeds(20))
    func `each transaction is in the rows or behind them, and none in both`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let database = try Database()
        var (running, waiting): ([UInt64], [UInt64]) = ([], [])
        var logged: [(xid: UInt64, offset: UInt64)] = []
        var settled = database.settled
        for _ in 0..<400 {
            switch Int.random(in: 0..<12, using: &random) {
            case 0..<3: running.append(database.begin())
            case 3..<6 where !running.isEmpty:
                let xid = running.remove(at: Int.random(in: running.indices, using: &random))
                logged.append((xid, database.writer.nextOffset))
                try database.log(xid, changes: random.pick([1, 2, 9, 20_000]))
                waiting.append(xid)
            case 6..<9 where !waiting.isEmpty:
                database.show(waiting.remove(at: Int.random(in: waiting.indices, using: &random)))
            // The hub has restarted.
            case 9: settled = SettledPosition()
            default:
                let tail = database.tail(settled)
                let beginning = try tail.beginning(asking: database)
                let visible = try #require(database.visible)
                // The log continues between the steps.
                if Bool.random(using: &random) { try database.commit() }
                let start = try tail.position(notSeenBy: visible, from: beginning, while: { true }).offset
                let lost = logged.filter { $0.offset < start && !visible.contains(UInt32($0.xid)) }
                #expect(lost.isEmpty, "from \(start) on \(lost) is never told")
                let first = logged.first { !visible.contains(UInt32($0.xid)) }
                #expect(start >= first?.offset ?? 0, "no further back than there is a reason for")
            }
        }
    }

    @Test func `a commit that waits is found however long ago it was logged, also by the next process`() throws {
        let database = try Database()
        let waiting = database.begin()
        try database.commit(changes: 7)
        try database.log(waiting)
        for _ in 0..<40 { try database.commit(changes: 10_000) }
        #expect(try database.position() == 7)
        for _ in 0..<40 { try database.commit(changes: 10_000) }
        #expect(try database.position(SettledPosition()) == 7)
        database.show(waiting)
        #expect(try database.position(SettledPosition()) == database.writer.nextOffset)
    }

    @Test func `what retention took may hide a commit, for as long as a transaction of then is open`() throws {
        let database = try Database()
        let open = database.begin()
        for _ in 0..<200 { try database.commit(changes: 1000) }
        let names = try database.directory.names().filter { $0.hasSuffix(".segment") }.sorted()
        #expect(names.count > 3)
        for name in names.prefix(2) { try database.directory.remove(name) }
        #expect(throws: SnapshotRefusal.unsettled) { try database.position() }
        database.show(open)
        #expect(try database.position() == database.writer.nextOffset)
        // From here on, no earlier transaction can be invisible, whatever begins and stays open.
        _ = database.begin()
        for _ in 0..<100 { try database.commit(changes: 1000) }
        #expect(try database.position() == database.writer.nextOffset)
        #expect(try database.position(SettledPosition()) == database.writer.nextOffset)
    }

    @Test func `what a gap lacks may be a commit that waits`() throws {
        let database = try Database()
        try database.commit()
        #expect(try database.position() == 1)
        let open = database.begin()
        try database.writer.beginEpoch(lsn: 0x100000, time: 1, payload: RawSpan())
        #expect(throws: SnapshotRefusal.unsettled) { try database.position() }
        database.show(open)
        #expect(try database.position() == 1)
        #expect(try database.position(SettledPosition()) == 1)
    }

    @Test func `what was written down of another log is not believed`() throws {
        let database = try Database()
        for _ in 0..<3 { try database.commit() }
        let directory = MemoryDirectory()
        let later = try Database(in: directory)
        let waiting = later.begin()
        try later.log(waiting)
        for _ in 0..<9 { try later.commit() }
        SettledPosition().advance(to: EventLogPosition(epoch: database.writer.epoch, offset: 3), in: directory)
        #expect(try later.position() == 0)
    }

    @Test func `a number that has come round is told from the one before`() throws {
        let visible = try #require(VisibleTransactions("4294967290:4294967300:4294967295,4294967298"))
        let seen = SeenTransactions(visible: visible, end: 100)
        #expect(seen.has(4_294_967_289, at: 1) && !seen.has(4_294_967_295, at: 1))
        #expect(seen.has(3, at: 1) && !seen.has(2, at: 1) && !seen.has(4, at: 1))
        #expect(!seen.has(3, at: 100))
    }
}
