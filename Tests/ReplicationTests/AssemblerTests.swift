import Bytes
import Change
import Diagnostics
import TestSupport
import Testing

@testable import Replication

@Suite(.within(minutes: 5)) struct WholeTransactionTests {
    @Test func `changes arrive in the order they were made`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100, time: 5, xid: 42), Table.orders(),
            PgOutput.insert(Table.orders, [1, "new", nil]),
            PgOutput.update(Table.orders, old: .key([1, nil, nil]), [2, "new", .unchanged]),
            PgOutput.delete(Table.orders, .key([2, nil, nil])),
            PgOutput.truncate([Table.orders], options: 3),
            PgOutput.logical("audit", [1, 2]),
            PgOutput.commit(100, end: 130, time: 5))
        let transaction = try #require(talk.sink.transactions.first)
        #expect(transaction.info.xid == 42)
        #expect(transaction.info.commitLSN == LSN(100) && transaction.info.endLSN == LSN(130))
        #expect(transaction.info.commitTime == 946_684_800_000_005)
        #expect(transaction.changes.map(\.operation) == [.insert, .update, .delete, .truncate, .message])
        #expect(transaction.changes.map(\.new) == [[1, "new", nil], [2, "new", .unchanged], nil, nil, nil])
        #expect(transaction.changes.map(\.old) == [nil, [1, nil, nil], [2, nil, nil], nil, nil])
        #expect(transaction.changes.map(\.oldImage) == [.none, .key, .key, .none, .none])
        #expect(transaction.changes[3].options == 3)
        #expect(transaction.changes[4].prefix == "audit" && transaction.changes[4].content == [1, 2])
        #expect(talk.sink.position == LSN(130))
        talk.expectNoBreach()
    }

    @Test func `each counts for its own project`() throws {
        let (one, other) = (Conversation(), Conversation(at: LSN(200)))
        for talk in [one, other] {
            try talk.hear(
                PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, "a", nil]),
                PgOutput.insert(Table.orders, [2, "b", nil]), PgOutput.delete(Table.orders, .key([1, nil, nil])),
                PgOutput.commit(100, end: 130))
        }
        #expect((one.metrics.transactionsIngested.value, one.metrics.transactionsSkipped.value) == (1, 0))
        #expect(
            [ProjectMetrics.Operation.insert, .update, .delete].map { one.metrics.changesIngested[$0].value } == [
                2, 0, 1,
            ])
        #expect((other.metrics.transactionsIngested.value, other.metrics.transactionsSkipped.value) == (0, 1))
        #expect(other.metrics.changesIngested[.insert].value == 0)
    }

    @Test func `unchanged, NULL and the empty string are three things`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100), Table.orders(),
            PgOutput.update(Table.orders, old: .full([1, "", nil]), [nil, .unchanged, ""]),
            PgOutput.commit(100, end: 130))
        #expect(talk.sink.changes.first?.new == [.null, .unchanged, .text("")])
        #expect(talk.sink.changes.first?.old == [.text("1"), .text(""), .null])
    }

    @Test func `binary values are kept as they came`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100), Table.audit(), PgOutput.insert(Table.audit, [.binary([0, 255])]),
            PgOutput.commit(100, end: 130))
        #expect(talk.sink.changes.first?.new == [.binary([0, 255])])
    }

    @Test func `a truncate of several tables is a change of each`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100), Table.orders(), Table.notes(),
            PgOutput.truncate([Table.notes, Table.orders], options: 1), PgOutput.commit(100, end: 130))
        #expect(talk.sink.changes.map(\.table) == ["public.notes", "public.orders"])
        #expect(talk.sink.changes.allSatisfy { $0.options == 1 && $0.new == nil && $0.old == nil })
        talk.expectNoBreach()
    }

    @Test func `an empty transaction moves the position and stores nothing`() throws {
        let talk = Conversation()
        try talk.hear(PgOutput.begin(commit: 100), Table.orders(), PgOutput.commit(100, end: 130))
        #expect(talk.sink.transactions.isEmpty)
        #expect(talk.sink.advances == [LSN(130)])
        talk.expectNoBreach()
    }

    @Test func `a transaction is open from Begin to Commit`() throws {
        let talk = Conversation()
        #expect(!talk.isInTransaction)
        try talk.hear(PgOutput.begin(commit: 100))
        #expect(talk.isInTransaction)
        try talk.hear(PgOutput.commit(100, end: 130))
        #expect(!talk.isInTransaction)
    }

    @Test func `what the log already has is passed over`() throws {
        let talk = Conversation(at: LSN(130))
        try talk.hear(
            PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, "old", nil]),
            PgOutput.logical("p", []), PgOutput.commit(100, end: 130))
        #expect(talk.sink.transactions.isEmpty && talk.sink.advances.isEmpty)
        // WAL records do not overlap. This one begins at the end of the last one, so it is new.
        try talk.hear(
            PgOutput.begin(commit: 130), PgOutput.insert(Table.orders, [2, "new", nil]),
            PgOutput.commit(130, end: 160))
        #expect(talk.sink.changes.map(\.new) == [[2, "new", nil]])
        #expect(talk.sink.position == LSN(160))
        talk.expectNoBreach()
    }

    @Test func `the same transaction again is taken once`() throws {
        let talk = Conversation()
        let messages = [
            PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, "a", nil]),
            PgOutput.commit(100, end: 130),
        ]
        for message in messages + messages { try talk.hear(one: message) }
        #expect(talk.sink.transactions.count == 1)
        talk.expectNoBreach()
    }

    @Test func `the origin is the transaction's own`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100), PgOutput.origin("elsewhere"), Table.orders(),
            PgOutput.insert(Table.orders, [1, "a", nil]), PgOutput.commit(100, end: 130))
        try talk.hear(
            PgOutput.begin(commit: 130), PgOutput.insert(Table.orders, [2, "b", nil]), PgOutput.commit(130, end: 160))
        #expect(talk.sink.transactions.map(\.info.origin) == ["elsewhere", ""])
        talk.expectNoBreach()
    }
}

@Suite(.within(minutes: 5)) struct PartTests {
    let row = String(repeating: "x", count: 1000)

    @Test func `a large transaction comes in parts of bounded size`() throws {
        let talk = Conversation()
        try talk.hear(PgOutput.begin(commit: 100, xid: 5), Table.orders(), Table.notes())
        for id in 0..<3000 { try talk.hear(PgOutput.insert(Table.orders, [.text("\(id)"), nil, .text(row)])) }
        try talk.hear(PgOutput.insert(Table.notes, ["last", "one"]), PgOutput.commit(100, end: 130))
        let transaction = try #require(talk.sink.transactions.first)
        #expect(transaction.parts.count == 3)
        #expect(transaction.parts.dropLast().allSatisfy { !$0.isLast })
        #expect(
            transaction.parts.allSatisfy { $0.payloadBytes < Limits.transactionPartTargetBytes + 2 * row.utf8.count })
        #expect(transaction.changes.dropLast().map { $0.new?[0] } == (0..<3000).map { .text("\($0)") })
        #expect(transaction.changes.last?.table == "public.notes")
        talk.expectNoBreach()
    }

    @Test func `a part names only the schemas it uses`() throws {
        let talk = Conversation()
        try talk.hear(PgOutput.begin(commit: 100), Table.orders(), Table.notes())
        for id in 0..<1500 { try talk.hear(PgOutput.insert(Table.orders, [.text("\(id)"), nil, .text(row)])) }
        try talk.hear(PgOutput.insert(Table.notes, ["a", "b"]), PgOutput.commit(100, end: 130))
        let names = try #require(talk.sink.transactions.first).parts.map { $0.schemas.map(\.name) }
        #expect(names == [["orders"], ["orders", "notes"]])
    }

    @Test func `a change larger than a part makes one of its own`() throws {
        let talk = Conversation()
        let huge = String(repeating: "y", count: 3 * Limits.transactionPartTargetBytes)
        try talk.hear(
            PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, .text(huge), nil]),
            PgOutput.insert(Table.orders, [2, "small", nil]), PgOutput.commit(100, end: 130))
        let transaction = try #require(talk.sink.transactions.first)
        #expect(transaction.parts.map(\.changes.count) == [1, 1])
        #expect(transaction.changes[0].new == [1, .text(huge), nil])
        talk.expectNoBreach()
    }

    @Test func `a transaction that ends with a full part ends in that part`() throws {
        let talk = Conversation()
        let huge = String(repeating: "y", count: 2 * Limits.transactionPartTargetBytes)
        try talk.hear(
            PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, .text(huge), nil]),
            PgOutput.commit(100, end: 130))
        #expect(talk.sink.transactions.map(\.parts.count) == [1])
        #expect(talk.sink.unfinished.isEmpty)
        #expect(talk.sink.position == LSN(130))
        talk.expectNoBreach()
    }

    @Test func `the same schema announced again is named once`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, nil, nil]), Table.orders(),
            PgOutput.insert(Table.orders, [2, nil, nil]), PgOutput.commit(100, end: 130))
        #expect(talk.sink.changes.count == 2)
        talk.expectNoBreach()
    }
}

@Suite(.within(minutes: 5)) struct SchemaTests {
    @Test func `a schema that changes in mid-transaction leaves each row its own`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, "a", nil]),
            Table.wideOrders(), PgOutput.insert(Table.orders, [2, "b", nil, "9.50"]), PgOutput.commit(100, end: 130))
        let transaction = try #require(talk.sink.transactions.first)
        let part = transaction.parts[0]
        #expect(part.schemas.map(\.columns.count) == [3, 4])
        #expect(transaction.changes.map(\.relation) == part.fingerprints)
        #expect(Set(part.fingerprints).count == 2)
        talk.expectNoBreach()
    }

    @Test func `a schema that changes back is named once`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100), Table.orders(), PgOutput.insert(Table.orders, [1, nil, nil]),
            Table.wideOrders(), PgOutput.insert(Table.orders, [2, nil, nil, nil]), Table.orders(),
            PgOutput.insert(Table.orders, [3, nil, nil]), PgOutput.commit(100, end: 130))
        #expect(talk.sink.transactions.first?.parts.first?.schemas.map(\.columns.count) == [3, 4])
        talk.expectNoBreach()
    }

    @Test func `types are named by the catalog, by their announcement, or by their number`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100), PgOutput.type(90_000, "mood"),
            PgOutput.relation(1, "t", [.init("a", type: 20), .init("b", type: 90_000), .init("c", type: 90_001)]),
            PgOutput.insert(1, [nil, nil, nil]), PgOutput.commit(100, end: 130))
        let schema = try #require(talk.sink.transactions.first?.parts.first?.schemas.first)
        #expect(schema.columns.map(\.typeName) == ["int8", "mood", "90001"])
    }

    @Test func `the catalog says what the primary key is`() throws {
        let talk = Conversation()
        talk.primaryKeys[Table.notes] = ["id"]
        try talk.hear(
            PgOutput.begin(commit: 100), Table.notes(), PgOutput.insert(Table.notes, ["k", "text"]),
            PgOutput.commit(100, end: 130))
        let schema = try #require(talk.sink.transactions.first?.parts.first?.schemas.first)
        #expect(schema.columns.map(\.isPrimaryKey) == [true, false])
        #expect(schema.columns.map(\.isIdentity) == [true, true])
        #expect(schema.identity == .full)
    }

    @Test func `so many schemas and no more`() throws {
        let talk = Conversation(maximumSchemas: 2)
        try talk.hear(Table.orders(), Table.notes(), Table.wideOrders())
        #expect(throws: SchemaBook.Refusal.self) { try talk.hear(Table.audit()) }
    }

    @Test func `so many schemas and no more in a streamed transaction`() throws {
        let talk = Conversation(maximumSchemas: 2)
        try talk.hear(PgOutput.streamStart(xid: 9), Table.orders(xid: 9), Table.notes(xid: 9), Table.wideOrders(xid: 9))
        #expect(throws: SchemaBook.Refusal.self) { try talk.hear(Table.audit(xid: 9)) }
    }
}

@Suite(.within(minutes: 5)) struct KeyTests {
    let ordersKey = RowKey.table(schema: "public", name: "orders")
    let notesKey = RowKey.table(schema: "public", name: "notes")
    let auditKey = RowKey.table(schema: "public", name: "audit")

    @Test func `a change is found by its new row and by its old one`() throws {
        let keys = try keys(
            Table.orders(), PgOutput.insert(Table.orders, [1, "a", nil]),
            PgOutput.update(Table.orders, old: .key([1, nil, nil]), [2, "a", nil]),
            PgOutput.delete(Table.orders, .key([3, nil, nil])))
        #expect(keys == [ordersKey, row(ordersKey, "1"), row(ordersKey, "2"), row(ordersKey, "3")])
    }

    @Test func `the primary key is the key, whatever the replica identity`() throws {
        let keys = try keys(
            primaryKeys: [Table.notes: ["id"]], Table.notes(),
            PgOutput.update(Table.notes, old: .full(["1", "before"]), ["1", "after"]))
        #expect(keys == [notesKey, row(notesKey, "1")])
    }

    @Test func `rows that cannot be told apart share one key`() throws {
        let unkeyed = RowKey.unkeyed(table: auditKey)
        #expect(try keys(Table.audit(), PgOutput.insert(Table.audit, ["line"])) == [auditKey, unkeyed])
        // REPLICA IDENTITY FULL alone gives no key, because two rows may be equal.
        #expect(
            try keys(Table.notes(), PgOutput.insert(Table.notes, ["1", "x"]))
                == [notesKey, RowKey.unkeyed(table: notesKey)])
    }

    @Test func `a key that was not sent is an unknown key`() throws {
        let keys = try keys(Table.orders(), PgOutput.update(Table.orders, [.unchanged, "a", nil]))
        #expect(keys == [ordersKey, RowKey.unkeyed(table: ordersKey)])
    }

    /// Checks the keys of a truncation. It removes every row, so a search for any row must find it.
    @Test func `a truncate is a change of every row`() throws {
        let keys = try keys(Table.orders(), PgOutput.truncate([Table.orders]))
        #expect(keys == [ordersKey, RowKey.unkeyed(table: ordersKey)])
    }

    @Test func `a streamed transaction has the keys it would have had`() throws {
        let changes: [(UInt32?) -> [UInt8]] = [
            { Table.orders(xid: $0) }, { Table.audit(xid: $0) },
            { PgOutput.insert(Table.orders, [1, "a", nil], xid: $0) },
            { PgOutput.update(Table.orders, old: .key([1, nil, nil]), [2, "a", nil], xid: $0) },
            { PgOutput.update(Table.orders, [2, "b", nil], xid: $0) },
            { PgOutput.delete(Table.orders, .key([2, nil, nil]), xid: $0) },
            { PgOutput.insert(Table.audit, ["x"], xid: $0) },
            { PgOutput.truncate([Table.orders, Table.audit], xid: $0) },
            { PgOutput.logical("p", [1], xid: $0) },
        ]
        let whole = Conversation()
        try whole.hear(PgOutput.begin(commit: 100, xid: 9))
        for change in changes { try whole.hear(change(nil)) }
        try whole.hear(PgOutput.commit(100, end: 130))
        let streamed = Conversation()
        try streamed.hear(PgOutput.streamStart(xid: 9))
        for change in changes { try streamed.hear(change(9)) }
        try streamed.hear(PgOutput.streamStop(), PgOutput.streamCommit(xid: 9, commit: 100, end: 130))
        #expect(streamed.sink.changes == whole.sink.changes)
        #expect(streamed.sink.transactions.first?.keys == whole.sink.transactions.first?.keys)
        streamed.expectNoBreach()
    }

    private func row(_ table: UInt64, _ key: String...) -> UInt64 { RowKey.row(table: table, key: key) }

    /// Returns the keys of rows and tables. Each part also has its transaction's keys.
    private func keys(primaryKeys: [UInt32: Set<String>] = [:], _ messages: [UInt8]...) throws -> Set<UInt64> {
        let talk = Conversation()
        talk.primaryKeys = primaryKeys
        try talk.hear(PgOutput.begin(commit: 100))
        for message in messages { try talk.hear(one: message) }
        try talk.hear(PgOutput.commit(100, end: 130))
        talk.expectNoBreach()
        let transaction = try #require(talk.sink.transactions.first)
        let own = RowKey.transaction(xid: transaction.info.xid)
        #expect(transaction.parts.allSatisfy { $0.keys.contains(own) })
        return transaction.keys.subtracting([own])
    }
}

@Suite(.within(minutes: 5)) struct MessageTests {
    @Test func `a message outside transactions stands at its own place`() throws {
        let talk = Conversation()
        try talk.hear(PgOutput.logical("deploy", Array("v2".utf8), isTransactional: false, lsn: 90))
        let transaction = try #require(talk.sink.transactions.first)
        #expect(transaction.info.xid == 0 && transaction.info.commitLSN == LSN(90))
        #expect(transaction.changes.first?.prefix == "deploy" && transaction.changes.first?.options == 0)
        #expect(talk.sink.position == LSN(90))
        talk.expectNoBreach()
    }

    @Test func `a message that the log has is passed over`() throws {
        let talk = Conversation(at: LSN(90))
        try talk.hear(PgOutput.logical("p", [], isTransactional: false, lsn: 90))
        #expect(talk.sink.transactions.isEmpty)
        try talk.hear(PgOutput.logical("p", [], isTransactional: false, lsn: 91))
        #expect(talk.sink.transactions.count == 1)
    }

    @Test func `messages alone make a transaction`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.begin(commit: 100), PgOutput.logical("p", [0, 1]), PgOutput.commit(100, end: 130))
        let change = try #require(talk.sink.changes.first)
        #expect(
            change.operation == .message && change.relation == 0 && change.options == 1 && change.content == [0, 1])
        #expect(talk.sink.transactions.first?.parts.first?.schemas.isEmpty == true)
        talk.expectNoBreach()
    }

    @Test func `a message of a rolled back savepoint is dropped`() throws {
        let talk = Conversation()
        try talk.hear(
            PgOutput.streamStart(xid: 9), PgOutput.logical("kept", [], xid: 9),
            PgOutput.logical("dropped", [], xid: 10), PgOutput.streamStop(),
            PgOutput.streamAbort(xid: 9, subtransaction: 10), PgOutput.streamCommit(xid: 9, commit: 100, end: 130))
        #expect(talk.sink.changes.map(\.prefix) == ["kept"])
        talk.expectNoBreach()
    }
}
