import Bytes
import Change
import TestSupport
import Testing

@testable import Replication

/// Messages written by hand from PostgreSQL's documentation, "Logical Replication Message Formats". They use neither
/// the decoder nor the encoder.
enum Golden {
    static let begin = hex("42 0000000001 6B3748 0002A24F 1B3F8000 0000 02F1")
    static let commit = hex("43 00 00000000016B3748 00000000016B3778 0002A24F1B3F8000")
    static let origin = hex("4F 0000000000ABCDEF 6E6F64655F31 00")
    static let relation = hex(
        """
        52 00004001 7075626C6963 00 7573657273 00 64 0002
        01 6964 00 00000014 FFFFFFFF
        00 6E616D65 00 00000413 0000001C
        """)
    static let relationOfPgCatalog = hex("52 00000507 00 7067636C 00 6E 0000")
    static let type = hex("59 00004010 7075626C6963 00 6D6F6F64 00")
    static let insert = hex("49 00004001 4E 0003 74 00000001 31 6E 74 00000000")
    static let insertOfBinary = hex("49 00004001 4E 0001 62 00000004 00000001")
    static let updateWithoutOld = hex("55 00004001 4E 0002 74 00000001 31 75")
    static let updateWithKey = hex("55 00004001 4B 0002 74 00000001 31 6E 4E 0002 74 00000001 32 75")
    static let updateWithOldRow = hex("55 00004001 4F 0002 74 00000001 31 6E 4E 0002 74 00000001 31 74 00000002 C3A9")
    static let deleteByKey = hex("44 00004001 4B 0002 74 00000001 31 6E")
    static let deleteOfOldRow = hex("44 00004001 4F 0002 74 00000001 31 74 00000001 78")
    static let truncateCascade = hex("54 00000002 01 00004001 00004002")
    static let messageInTransaction = hex("4D 01 00000000016B3700 6175646974 00 00000003 01FF00")
    static let messageAlone = hex("4D 00 00000000016B3700 00 00000000")
    static let streamStart = hex("53 000002F1 01")
    static let streamStop = hex("45")
    static let streamCommit = hex("63 000002F1 00 00000000016B3748 00000000016B3778 0002A24F1B3F8000")
    static let streamAbort = hex("41 000002F1 000002F2")

    // The same messages with their transaction id, as inside a streamed block.
    static let streamedRelation = hex("52 000002F1 00004001 7075626C6963 00 74 00 66 0001 01 61 00 00000019 FFFFFFFF")
    static let streamedType = hex("59 000002F1 00004010 7075626C6963 00 6D6F6F64 00")
    static let streamedInsert = hex("49 000002F2 00004001 4E 0001 6E")
    static let streamedUpdate = hex("55 000002F2 00004001 4F 0001 6E 4E 0001 75")
    static let streamedDelete = hex("44 000002F2 00004001 4F 0001 6E")
    static let streamedTruncate = hex("54 000002F1 00000001 02 00004001")
    static let streamedMessage = hex("4D 000002F1 01 00000000016B3700 70 00 00000001 21")

    static let plain = [
        begin, commit, origin, relation, relationOfPgCatalog, type, insert, insertOfBinary, updateWithoutOld,
        updateWithKey, updateWithOldRow, deleteByKey, deleteOfOldRow, truncateCascade, messageInTransaction,
        messageAlone, streamStart, streamStop, streamCommit, streamAbort,
    ]
    static let streamed = [
        streamedRelation, streamedType, streamedInsert, streamedUpdate, streamedDelete, streamedTruncate,
        streamedMessage,
    ]

    static func hex(_ text: String) -> [UInt8] {
        let digits = text.utf8.compactMap(Hex.value)
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }
}

/// The time 2023-06-30 03:23:16.683776 UTC, in microseconds since 2000 and since 1970.
private let moment: Int64 = 0x0002_A24F_1B3F_8000
private let unixMoment = moment + 946_684_800_000_000

@Suite(.within(minutes: 5)) struct GoldenMessageTests {
    @Test func `the encoder writes what the documentation describes`() {
        let users: [PgOutput.Column] = [
            .init("id", type: 20, isIdentity: true), .init("name", type: 1043, modifier: 28),
        ]
        #expect(PgOutput.begin(commit: 0x16b3748, time: moment, xid: 753) == Golden.begin)
        #expect(PgOutput.commit(0x16b3748, end: 0x16b3778, time: moment) == Golden.commit)
        #expect(PgOutput.origin("node_1", commit: 0xabcdef) == Golden.origin)
        #expect(PgOutput.relation(0x4001, "users", users) == Golden.relation)
        #expect(
            PgOutput.relation(0x507, schema: "", "pgcl", identity: .nothing, []) == Golden.relationOfPgCatalog)
        #expect(PgOutput.type(0x4010, "mood") == Golden.type)
        #expect(PgOutput.streamStart(xid: 753) == Golden.streamStart)
        #expect(PgOutput.streamStop() == Golden.streamStop)
        #expect(
            PgOutput.streamCommit(xid: 753, commit: 0x16b3748, end: 0x16b3778, time: moment) == Golden.streamCommit)
        #expect(PgOutput.streamAbort(xid: 753, subtransaction: 754) == Golden.streamAbort)
    }

    @Test func `the encoder writes changes as the documentation describes`() {
        let oid: UInt32 = 0x4001
        #expect(PgOutput.insert(oid, [1, nil, ""]) == Golden.insert)
        #expect(PgOutput.insert(oid, [.binary([0, 0, 0, 1])]) == Golden.insertOfBinary)
        #expect(PgOutput.update(oid, [1, .unchanged]) == Golden.updateWithoutOld)
        #expect(PgOutput.update(oid, old: .key([1, nil]), [2, .unchanged]) == Golden.updateWithKey)
        #expect(PgOutput.update(oid, old: .full([1, nil]), [1, "é"]) == Golden.updateWithOldRow)
        #expect(PgOutput.delete(oid, .key([1, nil])) == Golden.deleteByKey)
        #expect(PgOutput.delete(oid, .full([1, "x"])) == Golden.deleteOfOldRow)
        #expect(PgOutput.truncate([0x4001, 0x4002], options: 1) == Golden.truncateCascade)
        #expect(PgOutput.logical("audit", [1, 255, 0], lsn: 0x16b3700) == Golden.messageInTransaction)
        #expect(PgOutput.logical("", [], isTransactional: false, lsn: 0x16b3700) == Golden.messageAlone)
    }

    @Test func `the encoder names the transaction inside a block`() {
        let oid: UInt32 = 0x4001
        #expect(
            PgOutput.relation(oid, "t", identity: .full, [.init("a", isIdentity: true)], xid: 753)
                == Golden.streamedRelation)
        #expect(PgOutput.type(0x4010, "mood", xid: 753) == Golden.streamedType)
        #expect(PgOutput.insert(oid, [nil], xid: 754) == Golden.streamedInsert)
        #expect(PgOutput.update(oid, old: .full([nil]), [.unchanged], xid: 754) == Golden.streamedUpdate)
        #expect(PgOutput.delete(oid, .full([nil]), xid: 754) == Golden.streamedDelete)
        #expect(PgOutput.truncate([oid], options: 2, xid: 753) == Golden.streamedTruncate)
        #expect(PgOutput.logical("p", [0x21], lsn: 0x16b3700, xid: 753) == Golden.streamedMessage)
    }

    @Test func `the decoder reads transactions`() throws {
        #expect(try read(Golden.begin) == "begin \(LSN(0x16b3748)) \(unixMoment) 753")
        #expect(try read(Golden.commit) == "commit 0/16B3748 0/16B3778 \(unixMoment)")
        #expect(try read(Golden.origin) == "origin node_1")
        #expect(try read(Golden.streamStart) == "stream start 753 true")
        #expect(try read(Golden.streamStop) == "stream stop")
        #expect(try read(Golden.streamCommit) == "stream commit 753 0/16B3748 0/16B3778 \(unixMoment)")
        #expect(try read(Golden.streamAbort) == "stream abort 753 754")
    }

    @Test func `the decoder reads schemas`() throws {
        #expect(try read(Golden.relation) == "relation nil 16385 public.users primaryKey *id:20:-1 name:1043:28")
        #expect(try read(Golden.relationOfPgCatalog) == "relation nil 1287 pg_catalog.pgcl nothing")
        #expect(try read(Golden.type) == "type nil 16400 mood")
        #expect(try read(Golden.streamedRelation, inBlock: true) == "relation 753 16385 public.t full *a:25:-1")
        #expect(try read(Golden.streamedType, inBlock: true) == "type 753 16400 mood")
    }

    @Test func `the decoder reads changes`() throws {
        #expect(try read(Golden.insert) == "insert nil 16385 [1|NULL|]")
        #expect(try read(Golden.insertOfBinary) == "insert nil 16385 [[0, 0, 0, 1]]")
        #expect(try read(Golden.updateWithoutOld) == "update nil 16385 none [] [1|unchanged]")
        #expect(try read(Golden.updateWithKey) == "update nil 16385 key [1|NULL] [2|unchanged]")
        #expect(try read(Golden.updateWithOldRow) == "update nil 16385 full [1|NULL] [1|é]")
        #expect(try read(Golden.deleteByKey) == "delete nil 16385 key [1|NULL]")
        #expect(try read(Golden.deleteOfOldRow) == "delete nil 16385 full [1|x]")
        #expect(try read(Golden.truncateCascade) == "truncate nil [16385, 16386] 1")
        #expect(try read(Golden.messageInTransaction) == "message nil true 0/16B3700 audit [1, 255, 0]")
        #expect(try read(Golden.messageAlone) == "message nil false 0/16B3700  []")
    }

    @Test func `the decoder reads the transaction of a streamed change`() throws {
        #expect(try read(Golden.streamedInsert, inBlock: true) == "insert 754 16385 [NULL]")
        #expect(try read(Golden.streamedUpdate, inBlock: true) == "update 754 16385 full [NULL] [unchanged]")
        #expect(try read(Golden.streamedDelete, inBlock: true) == "delete 754 16385 full [NULL]")
        #expect(try read(Golden.streamedTruncate, inBlock: true) == "truncate 753 [16385] 2")
        #expect(try read(Golden.streamedMessage, inBlock: true) == "message 753 true 0/16B3700 p [33]")
    }

    func read(_ bytes: [UInt8], inBlock: Bool = false) throws -> String {
        var decoder = PgOutputDecoder()
        if inBlock { try decoder.check(Golden.streamStart.span.bytes) }
        return try description(of: decoder.decode(bytes.span.bytes))
    }

    private func description(of message: consuming PgOutputMessage) throws -> String {
        switch message {
        case .insert(let oid, let new, let xid): "insert \(text(xid)) \(oid) \(try row(new))"
        case .update(let oid, let image, let old, let new, let xid):
            "update \(text(xid)) \(oid) \(image) \(try row(old)) \(try row(new))"
        case .delete(let oid, let image, let old, let xid): "delete \(text(xid)) \(oid) \(image) \(try row(old))"
        case .truncate(let oids, let options, let xid): "truncate \(text(xid)) \(oids) \(options)"
        case .message(let isTransactional, let lsn, let prefix, let content, let xid):
            "message \(text(xid)) \(isTransactional) \(lsn) \(prefix.text) \(content.copied())"
        case .relation(let relation, let xid): "relation \(text(xid)) \(text(relation))"
        case .type(let oid, let name, let xid): "type \(text(xid)) \(oid) \(name.text)"
        case .begin(let commit, let time, let xid): "begin \(commit) \(time) \(xid)"
        case .commit(let commit, let end, let time): "commit \(commit) \(end) \(time)"
        case .origin(let name): "origin \(name.text)"
        case .streamStart(let xid, let isFirst): "stream start \(xid) \(isFirst)"
        case .streamStop: "stream stop"
        case .streamCommit(let xid, let commit, let end, let time): "stream commit \(xid) \(commit) \(end) \(time)"
        case .streamAbort(let xid, let subtransaction): "stream abort \(xid) \(subtransaction)"
        }
    }

    private func text(_ xid: UInt32?) -> String { xid.map(String.init) ?? "nil" }

    private func text(_ relation: RelationMessage) -> String {
        var words = ["\(relation.oid) \(relation.schema).\(relation.name) \(relation.identity)"]
        for column in relation.columns {
            words.append("\(column.isIdentity ? "*" : "")\(column.name):\(column.typeOID):\(column.typeModifier)")
        }
        return words.joined(separator: " ")
    }

    private func row(_ bytes: RawSpan) throws -> String {
        let cells = try Cell.row(Tuple(bytes)).map { cell in
            switch cell {
            case .null: "NULL"
            case .unchanged: "unchanged"
            case .text(let text): text
            case .binary(let bytes): "\(bytes)"
            }
        }
        return "[" + cells.joined(separator: "|") + "]"
    }
}
