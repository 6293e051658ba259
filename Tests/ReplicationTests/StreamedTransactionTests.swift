import Bytes
import Change
import System
import TestSupport
import Testing

@testable import Replication

@Suite(.within(minutes: 5)) struct StreamedTransactionTests {
    @Test func `interleaved transactions come out whole, in the order of their commits`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.streamStart(xid: 8), Table.orders(xid: 8), insert(1, 8), PgOutput.streamStop(),
            PgOutput.streamStart(xid: 9), Table.orders(xid: 9), insert(2, 9), PgOutput.streamStop(),
            PgOutput.streamStart(xid: 8, isFirst: false), insert(3, 8), PgOutput.streamStop(),
            PgOutput.begin(commit: 50, xid: 7), Table.orders(), PgOutput.insert(Table.orders, [4, nil, nil]),
            PgOutput.commit(50, end: 60),
            PgOutput.streamStart(xid: 9, isFirst: false), insert(5, 9), PgOutput.streamStop(),
            PgOutput.streamCommit(xid: 9, commit: 100, end: 110, time: 1),
            PgOutput.streamCommit(xid: 8, commit: 120, end: 130))
        #expect(talk.sink.transactions.map(\.info.xid) == [7, 9, 8])
        #expect(ids(talk) == ["4", "2", "5", "1", "3"])
        #expect(talk.sink.transactions[1].info.commitLSN == LSN(100))
        #expect(talk.sink.transactions[1].info.commitTime == 946_684_800_000_001)
        #expect(talk.sink.position == LSN(130))
        #expect(try talk.directory.names().isEmpty)
        talk.expectNoBreach()
    }

    @Test func `what was rolled back to a savepoint is dropped`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.streamStart(xid: 8), Table.orders(xid: 8), insert(1, 8), insert(2, 81), insert(3, 82),
            insert(4, 8),
            PgOutput.streamStop(), PgOutput.streamAbort(xid: 8, subtransaction: 81),
            PgOutput.streamStart(xid: 8, isFirst: false), insert(5, 83), PgOutput.streamStop(),
            PgOutput.streamCommit(xid: 8, commit: 100, end: 110))
        #expect(ids(talk) == ["1", "3", "4", "5"])
        talk.expectNoBreach()
    }

    @Test func `a transaction of which nothing is left moves the position only`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.streamStart(xid: 8), Table.orders(xid: 8), insert(1, 81), PgOutput.streamStop(),
            PgOutput.streamAbort(xid: 8, subtransaction: 81), PgOutput.streamCommit(xid: 8, commit: 100, end: 110))
        #expect(talk.sink.transactions.isEmpty)
        #expect(talk.sink.advances == [LSN(110)])
        talk.expectNoBreach()
    }

    @Test func `a transaction that was rolled back leaves nothing`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.streamStart(xid: 8), Table.orders(xid: 8), insert(1, 8), PgOutput.streamStop(),
            PgOutput.streamAbort(xid: 8))
        #expect(talk.sink.transactions.isEmpty && talk.sink.advances.isEmpty)
        #expect(try talk.directory.names().isEmpty)
        #expect(throws: (any Error).self) { try talk.hear(PgOutput.streamCommit(xid: 8, commit: 100, end: 110)) }
    }

    @Test func `what the log already has is passed over`() throws {
        let talk = Conversation(at: LSN(110))
        try talk.hear(
            PgOutput.streamStart(xid: 8), Table.orders(xid: 8), insert(1, 8), PgOutput.streamStop(),
            PgOutput.streamCommit(xid: 8, commit: 100, end: 110))
        #expect(talk.sink.transactions.isEmpty && talk.sink.advances.isEmpty)
        #expect(try talk.directory.names().isEmpty)
        // The schema in the skipped transaction counts, because the server does not send it again.
        try talk.hear(
            PgOutput.begin(commit: 110), PgOutput.insert(Table.orders, [2, nil, nil]), PgOutput.commit(110, end: 120))
        #expect(ids(talk) == ["2"])
        talk.expectNoBreach()
    }

    @Test func `the origin follows the start of the first block`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.streamStart(xid: 8), PgOutput.origin("elsewhere"), Table.orders(xid: 8), insert(1, 8),
            PgOutput.streamStop(), PgOutput.streamStart(xid: 8, isFirst: false), insert(2, 8), PgOutput.streamStop(),
            PgOutput.streamCommit(xid: 8, commit: 100, end: 110))
        #expect(talk.sink.transactions.map(\.info.origin) == ["elsewhere"])
        talk.expectNoBreach()
    }

    @Test func `a million bytes wait in a file and come in parts`() throws {
        let talk = Conversation()
        let text = String(repeating: "z", count: 900)
        try talk.hear(PgOutput.streamStart(xid: 8), Table.orders(xid: 8))
        for id in 0..<3000 {
            try talk.hear(PgOutput.insert(Table.orders, [.text("\(id)"), .text(text), nil], xid: id % 3 == 0 ? 80 : 8))
        }
        let huge = String(repeating: "h", count: 3 << 20)
        try talk.hear(PgOutput.insert(Table.orders, ["huge", .text(huge), nil], xid: 8), PgOutput.streamStop())
        try talk.hear(
            PgOutput.streamAbort(xid: 8, subtransaction: 80), PgOutput.streamCommit(xid: 8, commit: 100, end: 110))
        #expect(ids(talk) == (0..<3000).filter { $0 % 3 != 0 }.map(String.init) + ["huge"])
        #expect((talk.sink.transactions.first?.parts.count ?? 0) > 1)
        talk.expectNoBreach()
    }

    @Test func `so many transactions at once and no more`() throws {
        let talk = Conversation(maximumStreamed: 2)
        for xid: UInt32 in [8, 9] { try talk.hear(PgOutput.streamStart(xid: xid), PgOutput.streamStop()) }
        #expect(throws: TransactionSpool.TooMany.self) { try talk.hear(PgOutput.streamStart(xid: 10)) }
    }

    @Test func `a spool left by another connection is cleared`() throws {
        let directory = MemoryDirectory()
        _ = try directory.open("5.spool", for: .creating)
        _ = try directory.open("LOCK", for: .creating)
        var spool = TransactionSpool(directory: directory, maximum: 2)
        try spool.removeAll()
        #expect(try directory.names() == ["LOCK"])
    }
}

@Suite(.within(minutes: 5)) struct StreamedSchemaTests {
    @Test func `a schema announced in a block is that transaction's until it commits`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 10), Table.orders(), PgOutput.insert(Table.orders, [1, nil, nil]),
            PgOutput.commit(10, end: 20),
            PgOutput.streamStart(xid: 8), Table.wideOrders(xid: 8), wideInsert(2, 8), PgOutput.streamStop(),
            PgOutput.begin(commit: 30), PgOutput.insert(Table.orders, [3, nil, nil]), PgOutput.commit(30, end: 40),
            PgOutput.streamCommit(xid: 8, commit: 50, end: 60),
            PgOutput.begin(commit: 70), PgOutput.insert(Table.orders, [4, nil, nil, nil]),
            PgOutput.commit(70, end: 80))
        #expect(ids(talk) == ["1", "3", "2", "4"])
        #expect(talk.sink.changes.map { $0.new?.count } == [3, 3, 4, 4])
        talk.expectNoBreach()
    }

    @Test func `a schema of a transaction that was rolled back is forgotten`() throws {
        let talk = Conversation()
        try talk.hear(
            Table.orders(), PgOutput.streamStart(xid: 8), Table.wideOrders(xid: 8), wideInsert(2, 8),
            PgOutput.streamStop(), PgOutput.streamAbort(xid: 8),
            PgOutput.begin(commit: 30), PgOutput.insert(Table.orders, [3, nil, nil]), PgOutput.commit(30, end: 40))
        #expect(talk.sink.changes.map { $0.new?.count } == [3])
        #expect(throws: (any Error).self) {
            try talk.hear(PgOutput.streamStart(xid: 9), insert(4, 9))
        }
    }

    /// Checks a table that another transaction alters after a rollback to a savepoint has released its lock. The
    /// server's last description of the table counts, whichever transaction commits last.
    @Test func `a later announcement is not undone by the commit of an earlier one`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.streamStart(xid: 8), Table.orders(xid: 8), insert(1, 81), PgOutput.streamStop(),
            PgOutput.streamAbort(xid: 8, subtransaction: 81),
            PgOutput.begin(commit: 30), Table.wideOrders(), PgOutput.insert(Table.orders, [2, nil, nil, nil]),
            PgOutput.commit(30, end: 40),
            PgOutput.streamCommit(xid: 8, commit: 50, end: 60),
            PgOutput.begin(commit: 70), PgOutput.insert(Table.orders, [3, nil, nil, nil]),
            PgOutput.commit(70, end: 80))
        #expect(ids(talk) == ["2", "3"])
        talk.expectNoBreach()
    }

    @Test func `of two streamed announcements the later holds, in whichever order they commit`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.streamStart(xid: 8), Table.orders(xid: 8), insert(1, 8), PgOutput.streamStop(),
            PgOutput.streamStart(xid: 9), Table.wideOrders(xid: 9), wideInsert(2, 9), PgOutput.streamStop(),
            PgOutput.streamCommit(xid: 9, commit: 30, end: 40), PgOutput.streamCommit(xid: 8, commit: 50, end: 60),
            PgOutput.begin(commit: 70), PgOutput.insert(Table.orders, [3, nil, nil, nil]), PgOutput.commit(70, end: 80))
        #expect(ids(talk) == ["2", "1", "3"])
        talk.expectNoBreach()
    }

    @Test func `a schema that changes inside a streamed transaction leaves each row its own`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.streamStart(xid: 8), Table.orders(xid: 8), insert(1, 8), Table.wideOrders(xid: 8),
            wideInsert(2, 8), PgOutput.streamStop(), PgOutput.streamCommit(xid: 8, commit: 50, end: 60))
        #expect(talk.sink.changes.map { $0.new?.count } == [3, 4])
        #expect(talk.sink.transactions.first?.parts.first?.schemas.map(\.columns.count) == [3, 4])
        talk.expectNoBreach()
    }
}

private func insert(_ id: Int, _ xid: UInt32) -> [UInt8] {
    PgOutput.insert(Table.orders, [.text("\(id)"), nil, nil], xid: xid)
}

private func wideInsert(_ id: Int, _ xid: UInt32) -> [UInt8] {
    PgOutput.insert(Table.orders, [.text("\(id)"), nil, nil, nil], xid: xid)
}

/// Returns the first column of every stored row.
func ids(_ talk: Conversation) -> [String] {
    talk.sink.changes.compactMap { change in
        guard case .text(let id) = change.new?.first else { return nil }
        return id
    }
}
