import Bytes
import Change
import TestSupport
import Testing

@testable import Replication

/// Tests of messages that no server sends. Each must be refused with an error and leave the sink unchanged.
@Suite(.within(minutes: 5)) struct WrongOrderTests {
    static let insert = PgOutput.insert(Table.orders, [1, nil, nil])
    static let streamedInsert = PgOutput.insert(Table.orders, [1, nil, nil], xid: 8)
    static let begin = PgOutput.begin(commit: 100)
    static let start = PgOutput.streamStart(xid: 8)
    static let stop = PgOutput.streamStop()

    struct Case: Sendable, CustomTestStringConvertible {
        var what: String
        var messages: [[UInt8]]
        var testDescription: String { what }

        init(_ what: String, _ messages: [UInt8]...) {
            self.what = what
            self.messages = messages
        }
    }

    static let transactions = [
        Case("a Commit without a Begin", PgOutput.commit(100, end: 130)),
        Case("a Begin inside a transaction", begin, begin),
        Case("a second Commit", begin, PgOutput.commit(100, end: 130), PgOutput.commit(130, end: 160)),
        Case("another Commit than was begun", begin, PgOutput.commit(101, end: 130)),
        Case("a commit that ends before it begins", begin, PgOutput.commit(100, end: 99)),
        Case("an insert outside a transaction", Table.orders(), insert),
        Case("an update outside a transaction", Table.orders(), PgOutput.update(Table.orders, [1, nil, nil])),
        Case("a delete outside a transaction", Table.orders(), PgOutput.delete(Table.orders, .key([1, nil, nil]))),
        Case("a truncate outside a transaction", Table.orders(), PgOutput.truncate([Table.orders])),
        Case("a message of a transaction outside one", PgOutput.logical("p", [])),
        Case(
            "a message of its own inside a transaction", begin,
            PgOutput.logical("p", [], isTransactional: false, lsn: 9)),
        Case("an origin outside a transaction", PgOutput.origin("elsewhere")),
    ]

    static let rows = [
        Case("a change of an unknown relation", begin, insert),
        Case("a truncate of an unknown relation", begin, Table.orders(), PgOutput.truncate([Table.orders, 1])),
        Case("a row too narrow", begin, Table.orders(), PgOutput.insert(Table.orders, [1, nil])),
        Case("a row too wide", begin, Table.orders(), PgOutput.insert(Table.orders, [1, nil, nil, nil])),
        Case("an old row too narrow", begin, Table.orders(), PgOutput.delete(Table.orders, .key([1]))),
        Case(
            "an old row too wide", begin, Table.orders(),
            PgOutput.update(Table.orders, old: .full([1, nil, nil, nil]), [1, nil, nil])),
        Case("a streamed row too narrow", start, Table.orders(xid: 8), PgOutput.insert(Table.orders, [1], xid: 8)),
        Case("a streamed change of a relation announced outside", Table.orders(), start, streamedInsert),
        Case("a change of a relation announced in a block", start, Table.orders(xid: 8), stop, begin, insert),
    ]

    static let blocks = [
        Case("the end of a block that never began", stop),
        Case("a block inside a block", start, PgOutput.streamStart(xid: 9)),
        Case("a block inside a transaction", begin, start),
        Case("a Begin inside a block", start, begin),
        Case("a Commit inside a block", start, PgOutput.commit(100, end: 130)),
        Case("the commit of a transaction that was not streamed", PgOutput.streamCommit(xid: 8, commit: 100, end: 130)),
        Case("the commit of a block that is open", start, PgOutput.streamCommit(xid: 8, commit: 100, end: 130)),
        Case(
            "a streamed commit inside a transaction", start, stop, begin,
            PgOutput.streamCommit(xid: 8, commit: 100, end: 130)),
        Case(
            "a streamed commit that ends before it begins", start, stop,
            PgOutput.streamCommit(xid: 8, commit: 100, end: 99)),
        Case("a rollback inside a block", start, PgOutput.streamAbort(xid: 8)),
        Case("a rollback to a savepoint inside a block", start, PgOutput.streamAbort(xid: 8, subtransaction: 9)),
        Case("a rollback inside a transaction", start, stop, begin, PgOutput.streamAbort(xid: 8)),
        Case("a first block that comes second", start, stop, start),
        Case("a later block without the first", PgOutput.streamStart(xid: 8, isFirst: false)),
        Case("a message of its own inside a block", start, PgOutput.logical("p", [], isTransactional: false, xid: 8)),
    ]

    @Test(arguments: transactions + rows + blocks)
    func `is refused with an error`(wrong: Case) throws {
        let talk = Conversation()
        for message in wrong.messages.dropLast() { try talk.hear(one: message) }
        let before = (talk.sink.transactions.count, talk.sink.advances.count)
        let last = try #require(wrong.messages.last)
        #expect(throws: (any Error).self) { try talk.hear(one: last) }
        #expect(before == (talk.sink.transactions.count, talk.sink.advances.count))
        talk.expectNoBreach()
    }

    @Test(arguments: seeds(20))
    func `a shuffled and mutated conversation never breaks the sink's contract`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let messages = (Self.transactions + Self.rows + Self.blocks).flatMap(\.messages)
        for _ in 0..<100 {
            let talk = Conversation()
            for _ in 0..<40 {
                let message = messages.randomElement(using: &random) ?? []
                let isMutated = Int.random(in: 0..<10, using: &random) == 0
                do { try talk.hear(one: isMutated ? mutated(message, &random) : message) } catch {
                    try talk.reconnect()
                }
            }
            #expect(talk.sink.breaches.isEmpty)
        }
    }
}
