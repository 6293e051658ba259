import Bytes
import Change
import TestSupport
import Testing

/// Returns a row image as PostgreSQL sends it. A nil is NULL, and "\u{0}u" stands for an unchanged large value.
func tupleData(_ values: [String?]) -> [UInt8] {
    var writer = ByteWriter()
    writer.append(big: UInt16(values.count))
    for value in values {
        guard let value else {
            writer.append(UInt8(ascii: "n"))
            continue
        }
        if value == "\u{0}u" {
            writer.append(UInt8(ascii: "u"))
            continue
        }
        writer.append(UInt8(ascii: "t"))
        writer.append(big: UInt32(value.utf8.count))
        writer.append(value)
    }
    return writer.bytes.copied()
}

@Suite(.within(minutes: 5)) struct LSNTests {
    @Test(
        arguments: [
            ("0/0", 0), ("0/16B3748", 0x16b3748), ("A/FFFFFFFF", 0xaffff_ffff), ("FFFFFFFF/1", 0xffff_ffff_0000_0001),
        ]
            as [(String, UInt64)])
    func `reads and writes PostgreSQL's spelling`(text: String, value: UInt64) {
        #expect(LSN(text) == LSN(value))
        #expect(LSN(value).description == text)
    }

    @Test(arguments: ["", "/", "0", "0/", "/0", "0/123456789", "g/0", "0/0/0", "-1/0", "+1/0"])
    func `refuses what is none`(text: String) {
        #expect(LSN(text) == nil)
    }
}

@Suite(.within(minutes: 5)) struct RelationCodecTests {
    let relation = Relation(
        oid: 16_385, schema: "Ünïcode", name: "with \"quotes\"", identity: .full,
        columns: [
            Column(name: "id", typeOID: 2950, typeName: "uuid", isIdentity: true, isPrimaryKey: true),
            Column(
                name: "note", typeOID: 1043, typeModifier: 24, typeName: "varchar", isIdentity: true,
                isPrimaryKey: false),
        ])

    @Test func `comes back as it was`() throws {
        var writer = ByteWriter()
        RelationCodec.encode(relation, to: &writer)
        #expect(try RelationCodec.decode(writer.bytes) == relation)
        #expect(relation.description == #""Ünïcode"."with ""quotes""""#)
        #expect(relation.keyColumns == [0])
    }

    @Test func `refuses every truncation`() {
        var writer = ByteWriter()
        RelationCodec.encode(relation, to: &writer)
        let whole = writer.bytes.copied()
        for length in 0..<whole.count {
            #expect(throws: ByteError.self) { try RelationCodec.decode(Array(whole[..<length]).span.bytes) }
        }
    }

    @Test func `another schema has another fingerprint`() {
        var changed = relation
        changed.columns[1].typeModifier = 25
        var one = ByteWriter()
        var other = ByteWriter()
        RelationCodec.encode(relation, to: &one)
        RelationCodec.encode(changed, to: &other)
        #expect(RelationCodec.fingerprint(of: one.bytes) != RelationCodec.fingerprint(of: other.bytes))
    }
}

@Suite(.within(minutes: 5)) struct TransactionCodecTests {
    let info = TransactionInfo(
        xid: 7421, commitLSN: LSN(100), endLSN: LSN(0), commitTime: 1_764_000_000_123_456, origin: "elsewhere")

    func encoded() -> [UInt8] {
        var writer = ByteWriter()
        TransactionCodec.begin(info, firstIndex: 3, to: &writer)
        let old = tupleData(["1", "before"])
        let new = tupleData(["1", nil, "\u{0}u"])
        TransactionCodec.append(
            .update, relation: 77, oldImage: .full, old: old.span.bytes, new: new.span.bytes, to: &writer)
        TransactionCodec.append(
            .truncate, relation: 78, oldImage: .none, old: RawSpan(), new: RawSpan(), options: 2, to: &writer)
        TransactionCodec.finish(endLSN: LSN(0x1_0000_0084), changeCount: 2, in: &writer)
        return writer.bytes.copied()
    }

    @Test func `comes back as it was`() throws {
        let bytes = encoded()
        var part = try TransactionPart(bytes.span.bytes)
        #expect(part.info.xid == 7421)
        #expect(part.info.endLSN == LSN(0x1_0000_0084))
        #expect(part.info.origin == "elsewhere")
        #expect(part.firstIndex == 3)
        guard let update = try part.next() else {
            Issue.record("no change")
            return
        }
        #expect(update.operation == .update && update.oldImage == .full && update.relation == 77)
        #expect(try description(update.new) == ["1", "NULL", "unchanged"])
        #expect(try description(update.old) == ["1", "before"])
        guard let truncate = try part.next() else {
            Issue.record("no second change")
            return
        }
        #expect(truncate.operation == .truncate && truncate.options == 2)
        let ended = try part.next() == nil
        #expect(ended)
    }

    @Test func `refuses every truncation without crashing`() {
        let whole = encoded()
        for length in 0..<whole.count {
            #expect(throws: ByteError.self) {
                let cut = Array(whole[..<length])
                var part = try TransactionPart(cut.span.bytes)
                while try part.next() != nil {}
            }
        }
    }

    func description(_ tuple: borrowing Tuple?) throws -> [String] {
        guard let tuple = copy tuple else { return [] }
        var columns = tuple.columns()
        var values: [String] = []
        while let value = try columns.next() {
            switch value {
            case .null: values.append("NULL")
            case .unchanged: values.append("unchanged")
            case .text(let span), .binary(let span): values.append(span.text)
            }
        }
        return values
    }
}
