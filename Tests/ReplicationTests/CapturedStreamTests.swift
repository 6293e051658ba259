import Change
import TestSupport
import Testing

@testable import Replication

/// Tests with the messages of a real server, from beginning to end.
@Suite(.within(minutes: 5)) struct CapturedStreamTests {
    @Test func `every transaction comes once, in the order of the commits`() throws {
        let talk = try heard(from: .zero)
        #expect(talk.sink.transactions.map(\.info.xid) == [752, 0, 748, 756, 757, 760, 761])
        #expect(talk.sink.transactions.map(\.changes.count) == [1, 1, 3, 1, 9, 1, 1])
        #expect(talk.sink.transactions.map(\.info.origin) == ["", "", "elsewhere", "", "", "", ""])
        #expect(try talk.directory.names().isEmpty)
        talk.expectNoBreach()
    }

    @Test func `what was rolled back to savepoints is gone`() throws {
        let changes = try heard(from: .zero).sink.transactions[2].changes
        #expect(changes.map(\.operation) == [.message, .insert, .insert])
        #expect(changes[0].prefix == "pre" && changes[0].content == Array("tx".utf8))
        #expect(changes.compactMap(\.new) == [[1, "kept", "calm"], [4, "kept too", "calm"]])
    }

    @Test func `rows have the columns their table had`() throws {
        let transactions = try heard(from: .zero).sink.transactions
        #expect(transactions[0].parts[0].schemas[0].columns.map(\.name) == ["id", "w", "n"])
        #expect(transactions[2].parts[0].schemas[0].columns.map(\.typeName) == ["int4", "text", "mood"])
        #expect(transactions[3].changes[0].new == [3, "after", 2])
    }

    @Test func `changes of every kind`() throws {
        let changes = try heard(from: .zero).sink.transactions[4].changes
        #expect(
            changes.map(\.operation) == [
                .update, .update, .delete, .insert, .insert, .update, .delete, .truncate, .truncate,
            ])
        #expect(changes[0].oldImage == .none && changes[0].new == [3, "after", 7])
        #expect(changes[1].oldImage == .key && changes[1].old == [3, nil, nil] && changes[1].new == [30, "after", 7])
        #expect(changes[2].oldImage == .key && changes[2].old == [30, nil, nil])
        #expect(changes[5].oldImage == .full && changes[5].old == [1, nil] && changes[5].new == [1, "é"])
        #expect(changes[6].oldImage == .full && changes[6].old == [2, ""])
        #expect(changes[7].table == "public.t" && changes[8].table == "public.u" && changes[8].options == 2)
    }

    @Test func `an untouched large value is unknown, not NULL`() throws {
        let transactions = try heard(from: .zero).sink.transactions
        #expect(transactions[5].changes[0].new == [10, .text(CapturedStream.value), "calm"])
        #expect(transactions[6].changes[0].new == [10, .unchanged, "rough"])
    }

    /// Checks a server that sends again from any position: the log must accept only the transactions after its end.
    @Test func `heard again from any position, the rest comes once`() throws {
        let whole = try heard(from: .zero).sink.transactions
        for (taken, last) in whole.enumerated() {
            let talk = try heard(from: last.info.endLSN)
            #expect(talk.sink.transactions.map(\.info) == whole.dropFirst(taken + 1).map(\.info))
            talk.expectNoBreach()
        }
    }

    /// Checks a connection that ends after any message. The server then sends all messages again.
    @Test func `cut anywhere and heard again, nothing is lost or doubled`() throws {
        let whole = try heard(from: .zero).sink.transactions
        for length in CapturedStream.messages.indices {
            let talk = Conversation()
            for message in CapturedStream.messages[..<length] { try talk.hear(one: message) }
            try talk.reconnect()
            for message in CapturedStream.messages { try talk.hear(one: message) }
            #expect(talk.sink.transactions.map(\.info) == whole.map(\.info))
            #expect(talk.sink.changes == whole.flatMap(\.changes))
            talk.expectNoBreach()
        }
    }

    private func heard(from position: LSN) throws -> Conversation {
        let talk = Conversation(at: position)
        for message in CapturedStream.messages { try talk.hear(one: message) }
        return talk
    }
}
