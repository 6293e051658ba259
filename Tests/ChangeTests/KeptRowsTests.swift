import Bytes
import TestSupport
import Testing

@testable import Change

@Suite(.within(minutes: 1)) struct KeptRowsTests {
    private static func note(_ part: UInt32) -> KeptRows {
        var schema = ByteWriter()
        RelationCodec.encode(
            Relation(
                oid: 16_400, schema: "public", name: "notes", identity: .full,
                columns: [Column(name: "id", typeOID: 23, typeName: "int4", isIdentity: true, isPrimaryKey: true)]),
            to: &schema)
        return KeptRows(
            reading: 0xfeed, lsn: LSN(0x1_0000_0007), time: -5, part: part, isLast: part == 1, schema: schema.copied(),
            rows: [
                KeptRows.Row(image: [0, 1, UInt8(ascii: "n")]), KeptRows.Row(image: [0, 1, 0x75], isForgotten: true),
            ])
    }

    private static func stored(_ notes: [KeptRows]) -> [UInt8] {
        var writer = ByteWriter()
        KeptRowsCodec.encode(notes, to: &writer)
        return writer.copied()
    }

    @Test func `what was stored is read again`() throws {
        for count in 0...2 {
            let notes = (0..<UInt32(count)).map(Self.note)
            let bytes = Self.stored(notes)
            #expect(try KeptRowsCodec.decode(bytes.span.bytes) == notes)
            #expect(bytes.count == notes.reduce(5) { $0 + $1.byteCount })
            #expect(KeptRowsCodec.keys(of: bytes.span.bytes).map(Set.init) == Set(notes.flatMap(\.keys)))
        }
        #expect(Self.note(0).keys == [RowKey.kept, RowKey.kept(table: RowKey.table(schema: "public", name: "notes"))])
    }

    /// Checks the flags that mark a row as forgotten.
    @Test func `a row's flags stand before its image`() throws {
        var bytes = Self.stored([Self.note(0)])
        var starts: [Int] = []
        try KeptRowsCodec.visit(
            bytes.span.bytes, { (_) throws(ByteError) in },
            { (_, _, start) throws(ByteError) in starts.append(start) })
        bytes[starts[0] - KeptRowsCodec.rowHeadBytes] = KeptRowsCodec.forgottenFlag
        #expect(try KeptRowsCodec.decode(bytes.span.bytes)[0].rows.map(\.isForgotten) == [true, true])
    }

    @Test func `what was not stored so is refused`() {
        let bytes = Self.stored([Self.note(0), Self.note(1)])
        for end in 0..<bytes.count {
            let cut = Array(bytes[..<end])
            #expect(throws: ByteError.self) { try KeptRowsCodec.decode(cut.span.bytes) }
            #expect(KeptRowsCodec.keys(of: cut.span.bytes) == nil)
        }
    }
}
