import Change
import TestSupport
import Testing

@testable import Replication

@Suite(.within(minutes: 5)) struct SchemaBookTests {
    @Test func `an unknown relation is refused by its number`() {
        var book = SchemaBook(maximum: 4)
        expectUnknown(9, inStream: nil, &book)
        expectUnknown(9, inStream: 1, &book)
    }

    @Test func `the same schema said again is the same object`() throws {
        var book = SchemaBook(maximum: 4)
        try book.announced(message("a"), primaryKey: [], inStream: nil)
        let first = try book.schema(9, inStream: nil)
        try book.announced(message("a"), primaryKey: [], inStream: nil)
        #expect(try book.schema(9, inStream: nil) === first)
        try book.announced(message("b"), primaryKey: [], inStream: nil)
        #expect(try book.schema(9, inStream: nil) !== first)
    }

    /// Checks a table with the same columns and another primary key.
    @Test func `another primary key is another schema`() throws {
        var book = SchemaBook(maximum: 4)
        try book.announced(message("a"), primaryKey: [], inStream: nil)
        let unkeyed = try book.schema(9, inStream: nil).fingerprint
        try book.announced(message("a"), primaryKey: ["a"], inStream: nil)
        #expect(try book.schema(9, inStream: nil).fingerprint != unkeyed)
    }

    @Test func `types too many are named by their number`() throws {
        var book = SchemaBook(maximum: 2)
        for oid: UInt32 in [70_001, 70_002, 70_003] { book.typeAnnounced(oid, "type\(oid)") }
        book.typeAnnounced(70_002, "renamed")
        let types: [UInt32] = [70_001, 70_002, 70_003]
        let columns = types.map {
            RelationMessage.Column(name: "c\($0)", typeOID: $0, typeModifier: -1, isIdentity: false)
        }
        let relation = RelationMessage(oid: 9, schema: "s", name: "t", identity: .nothing, columns: columns)
        try book.announced(relation, primaryKey: [], inStream: nil)
        #expect(
            try book.schema(9, inStream: nil).relation.columns.map(\.typeName) == ["type70001", "renamed", "70003"])
    }

    @Test func `what a rolled back transaction announced makes room again`() throws {
        var book = SchemaBook(maximum: 1)
        try book.announced(message("a"), primaryKey: [], inStream: 1)
        #expect(throws: SchemaBook.Refusal.self) { try book.announced(message("a"), primaryKey: [], inStream: nil) }
        book.streamAborted(1)
        try book.announced(message("a"), primaryKey: [], inStream: nil)
    }

    @Test func `a schema just read is not remembered past the next announcement`() throws {
        var book = SchemaBook(maximum: 4)
        try book.announced(message("a"), primaryKey: [], inStream: nil)
        _ = try book.schema(9, inStream: nil)
        try book.announced(message("b"), primaryKey: [], inStream: 1)
        #expect(try book.schema(9, inStream: nil).relation.columns[0].name == "a")
        book.streamCommitted(1)
        #expect(try book.schema(9, inStream: nil).relation.columns[0].name == "b")
        expectUnknown(9, inStream: 1, &book)
    }

    private func message(_ column: String) -> RelationMessage {
        RelationMessage(
            oid: 9, schema: "s", name: "t", identity: .primaryKey,
            columns: [.init(name: column, typeOID: 25, typeModifier: -1, isIdentity: true)])
    }

    private func expectUnknown(_ oid: UInt32, inStream xid: UInt32?, _ book: inout SchemaBook) {
        do throws(SchemaBook.Refusal) {
            _ = try book.schema(oid, inStream: xid)
            Issue.record("relation \(oid) is known")
        } catch {
            guard case .unknownRelation(oid) = error else {
                Issue.record("refused for another reason: \(error)")
                return
            }
        }
    }
}
