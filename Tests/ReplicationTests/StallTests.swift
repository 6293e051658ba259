import Bytes
import Change
import TestSupport
import Testing

@testable import Replication

@Suite(.within(minutes: 5)) struct StallTests {
    let text = Cell.text(String(repeating: "x", count: 2000))

    @Test func `a refused transaction is handed over again, once`() throws {
        let talk = Conversation()
        talk.sink.refusals = 3
        try talk.hear(
            PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, nil, nil]),
            PgOutput.commit(100, end: 130))
        #expect(talk.stalls.count == 3)
        #expect(ids(talk) == ["1"])
        talk.expectNoBreach()
    }

    @Test func `a refusal in the middle of a large transaction loses and doubles nothing`() throws {
        let talk = Conversation()
        try talk.hear(PgOutput.begin(commit: 100), Table.orders())
        for id in 0..<2000 {
            if id % 400 == 0 { talk.sink.refusals = 2 }
            try talk.hear(PgOutput.insert(Table.orders, [.text("\(id)"), text, nil]))
        }
        talk.sink.refusals = 1
        try talk.hear(PgOutput.commit(100, end: 130))
        #expect(ids(talk) == (0..<2000).map(String.init))
        #expect(talk.stalls.count >= 3)
        talk.expectNoBreach()
    }

    @Test func `a refused advance is made again`() throws {
        let talk = Conversation()
        talk.sink.refusals = 2
        try talk.hear(PgOutput.begin(commit: 100), PgOutput.commit(100, end: 130))
        #expect(talk.stalls.count == 2 && talk.sink.advances == [LSN(130)])
    }

    @Test func `a full disk under the spool loses and doubles nothing`() throws {
        let talk = Conversation()
        try talk.hear(PgOutput.streamStart(xid: 8), Table.orders(xid: 8))
        for id in 0..<1000 {
            if id % 100 == 0 { talk.directory.beFull(for: 2) }
            try talk.hear(PgOutput.insert(Table.orders, [.text("\(id)"), text, nil], xid: 8))
        }
        talk.directory.beFull(for: 3)
        try talk.hear(PgOutput.streamStop())
        talk.sink.refusals = 2
        try talk.hear(PgOutput.streamCommit(xid: 8, commit: 100, end: 110))
        #expect(ids(talk) == (0..<1000).map(String.init))
        #expect(talk.stalls.contains { $0.operation == "write" && $0.path.hasSuffix("8.spool") })
        #expect(talk.stalls.contains { $0.operation == "append" })
        talk.expectNoBreach()
    }

    @Test func `giving up leaves the transaction open, to be abandoned`() throws {
        let talk = Conversation()
        talk.patience = 2
        talk.sink.refusals = .max
        try talk.hear(PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, nil, nil]))
        #expect(throws: Conversation.Giveup.self) { try talk.hear(PgOutput.commit(100, end: 130)) }
        #expect(talk.isInTransaction)
        #expect(talk.sink.transactions.isEmpty && talk.sink.unfinished.isEmpty)
        talk.expectNoBreach()
    }

    @Test func `giving up in the replay of a streamed transaction leaves it open`() throws {
        let talk = Conversation()
        try talk.hear(PgOutput.streamStart(xid: 8), Table.orders(xid: 8))
        for id in 0..<2000 { try talk.hear(PgOutput.insert(Table.orders, [.text("\(id)"), text, nil], xid: 8)) }
        try talk.hear(PgOutput.streamStop())
        talk.patience = 1
        talk.sink.refusals = .max
        #expect(throws: Conversation.Giveup.self) {
            try talk.hear(PgOutput.streamCommit(xid: 8, commit: 100, end: 110))
        }
        #expect(talk.isInTransaction)
        talk.expectNoBreach()
    }

    @Test func `giving up on the spool takes nothing`() throws {
        let talk = Conversation()
        talk.patience = 1
        try talk.hear(
            PgOutput.streamStart(xid: 8), Table.orders(xid: 8), PgOutput.insert(Table.orders, [1, nil, nil], xid: 8))
        talk.directory.beFull(for: .max)
        #expect(throws: Conversation.Giveup.self) { try talk.hear(PgOutput.streamStop()) }
        #expect(!talk.isInTransaction && talk.sink.transactions.isEmpty)
    }
}
