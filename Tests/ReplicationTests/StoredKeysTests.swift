import Bytes
import Change
import TestSupport
import Testing

@testable import Replication

/// Tests that an index which is rebuilt from the entries finds the same keys as the first one.
@Suite(.within(minutes: 5)) struct StoredKeysTests {
    let orders = Schema(
        Relation(
            oid: Table.orders, schema: "public", name: "orders", identity: .primaryKey,
            columns: [Column(name: "id", typeOID: 20, typeName: "int8", isIdentity: true, isPrimaryKey: true)]))

    @Test func `finds the keys that came with the transactions`() throws {
        let talk = Conversation()
        for message in CapturedStream.messages { try talk.hear(one: message) }
        for transaction in talk.sink.transactions {
            for part in transaction.parts { #expect(keys(again: part) == Set(part.keys)) }
        }
    }

    @Test func `a truncate is found by every row`() {
        let keys = stored(orders).keys(ofTransaction: payload(.truncate, orders).span.bytes)
        #expect(keys.map(Set.init) == [orders.tableKey, orders.rows.unkeyedKey, RowKey.transaction(xid: 1)])
    }

    @Test func `says nothing of a schema it was not shown`() {
        #expect(StoredKeys().keys(ofTransaction: payload(.truncate, orders).span.bytes) == nil)
    }

    /// Checks an unreadable transaction. If the index had only part of its keys, a search would miss the other rows.
    @Test func `says nothing of a transaction it cannot read to its end`() {
        let whole = payload(.insert, orders, PgOutput.tuple([1]))
        let stored = stored(orders)
        for length in 0..<whole.count {
            #expect(stored.keys(ofTransaction: Array(whole[..<length]).span.bytes) == nil)
        }
    }

    private func keys(again part: RecordedPart) -> Set<UInt64>? {
        StoredKeysTests.stored(part.schemas.map(Schema.init)).keys(ofTransaction: part.payload.span.bytes).map(Set.init)
    }

    private func stored(_ schema: Schema) -> StoredKeys { Self.stored([schema]) }

    private static func stored(_ schemas: [Schema]) -> StoredKeys {
        let stored = StoredKeys()
        for schema in schemas {
            let encoded = schema.encoded
            stored.relation(encoded.span.bytes)
        }
        return stored
    }

    private func payload(_ operation: Operation, _ schema: Schema, _ new: [UInt8] = []) -> [UInt8] {
        var writer = ByteWriter()
        TransactionCodec.begin(
            TransactionInfo(xid: 1, commitLSN: LSN(1), endLSN: LSN(2), commitTime: 0), firstIndex: 0, to: &writer)
        TransactionCodec.append(
            operation, relation: schema.fingerprint, oldImage: .none, old: RawSpan(), new: new.span.bytes, to: &writer)
        TransactionCodec.finish(endLSN: LSN(2), changeCount: 1, in: &writer)
        return writer.copied()
    }
}
