import Bytes
import Change
import Protocol
import TestSupport
import Testing

/// Change in its stored form, with the texts that the encoder makes of it.
struct ChangeStage {
    var relation: Relation
    var commitTime: Int64 = 1_772_360_430_456_789

    static func relation(_ columns: [Column], identity: ReplicaIdentity = .primaryKey) -> Relation {
        Relation(oid: 5, schema: "public", name: "todos", identity: identity, columns: columns)
    }

    static func column(_ name: String, _ oid: UInt32, isKey: Bool = false, isIdentity: Bool? = nil) -> Column {
        Column(
            name: name, typeOID: oid, typeName: BuiltInType.name(of: oid) ?? "own", isIdentity: isIdentity ?? isKey,
            isPrimaryKey: isKey)
    }

    private static func tuple(_ cells: [Cell]?) -> [UInt8] {
        var writer = ByteWriter()
        guard let cells else { return [] }
        writer.append(big: UInt16(cells.count))
        for cell in cells {
            switch cell {
            case .null: writer.append(UInt8(ascii: "n"))
            case .unchanged: writer.append(UInt8(ascii: "u"))
            case .text(let text):
                writer.append(UInt8(ascii: "t"))
                writer.append(big: UInt32(text.utf8.count))
                writer.append(text)
            case .binary(let bytes):
                writer.append(UInt8(ascii: "b"))
                writer.append(big: UInt32(bytes.count))
                writer.append(bytes)
            }
        }
        return writer.copied()
    }

    static func stored(_ operation: Operation, old: [Cell]? = nil, isFull: Bool = false, new: [Cell]? = nil) -> [UInt8]
    {
        var writer = ByteWriter()
        let info = TransactionInfo(xid: 1, commitLSN: .zero, endLSN: .zero, commitTime: 0)
        TransactionCodec.begin(info, firstIndex: 0, to: &writer)
        TransactionCodec.append(
            operation, relation: 1, oldImage: old == nil ? .none : isFull ? .full : .key, old: tuple(old).span.bytes,
            new: tuple(new).span.bytes, to: &writer)
        TransactionCodec.finish(endLSN: .zero, changeCount: 1, in: &writer)
        return writer.copied()
    }

    func body(
        _ operation: Operation, old: [Cell]? = nil, isFull: Bool = false, new: [Cell]? = nil, view: ChangeView? = nil,
        maximum: Int = 1 << 20, asDeparture: Bool = false
    ) throws -> String {
        let bytes = Self.stored(operation, old: old, isFull: isFull, new: new)
        var part = try TransactionPart(bytes.span.bytes)
        guard let change = try part.next() else { return "" }
        var writer = ByteWriter()
        writer.append("before")
        let view = view ?? ChangeView(relation)
        let encoder = ChangeEncoder(maximumBodyBytes: maximum)
        if asDeparture {
            try encoder.append(departure: change, view, commitTime: commitTime, to: &writer)
        } else {
            try encoder.append(change, view, commitTime: commitTime, to: &writer)
        }
        return String(writer.bytes.text.dropFirst(6))
    }
}

@Suite(.within(minutes: 5)) struct ChangeTests {
    private let todos = ChangeStage(
        relation: ChangeStage.relation([
            ChangeStage.column("id", 20, isKey: true), ChangeStage.column("title", 25), ChangeStage.column("done", 16),
            ChangeStage.column("tags", 1009),
        ]))
    private let head = #"{"schema":"public","table":"todos","type":"#
    private let time = #""commit_timestamp":"2026-03-01T10:20:30.456Z","#
    private let columns =
        #""columns":[{"name":"id","type":"int8"},{"name":"title","type":"text"},"#
        + #"{"name":"done","type":"bool"},{"name":"tags","type":"_text"}]"#

    @Test func `traps 9, 10 and 12: an insert has a record and no old one`() throws {
        #expect(
            try todos.body(.insert, new: ["9007199254740993", "milk", "f", "{a,b}"])
                == head + #""INSERT","# + time + #""errors":null,"# + columns
                + #","record":{"id":9007199254740993,"title":"milk","done":false,"tags":["a","b"]}}"#)
    }

    @Test func `trap 10: an update without an old image tells the identity from the new row`() throws {
        #expect(
            try todos.body(.update, new: ["7", "oat milk", nil, .unchanged])
                == head + #""UPDATE","# + time + #""errors":null,"# + columns
                + #","record":{"id":7,"title":"oat milk","done":null},"old_record":{"id":7}}"#)
    }

    @Test func `an update of the key tells the old one, and no more of the old row`() throws {
        #expect(
            try todos.body(.update, old: ["6", nil, nil, nil], new: ["7", "a", "t", "{}"])
                == head + #""UPDATE","# + time + #""errors":null,"# + columns
                + #","record":{"id":7,"title":"a","done":true,"tags":[]},"old_record":{"id":6}}"#)
    }

    @Test func `with a full identity large values that did not change come from the old row`() throws {
        #expect(
            try todos.body(
                .update, old: ["7", "long", nil, "{x}"], isFull: true, new: ["7", .unchanged, "t", .unchanged])
                == head + #""UPDATE","# + time + #""errors":null,"# + columns
                + #","record":{"id":7,"title":"long","done":true,"tags":["x"]},"#
                + #""old_record":{"id":7,"title":"long","done":null,"tags":["x"]}}"#)
    }

    @Test func `trap 10: a delete has an old record and no new one`() throws {
        #expect(
            try todos.body(.delete, old: ["7", nil, nil, nil])
                == head + #""DELETE","# + time + #""errors":null,"# + columns + #","old_record":{"id":7}}"#)
        #expect(
            try todos.body(.delete, old: ["7", "a", nil, "{b}"], isFull: true)
                == head + #""DELETE","# + time + #""errors":null,"# + columns
                + #","old_record":{"id":7,"title":"a","done":null,"tags":["b"]}}"#)
    }

    @Test func `trap 11: under row level security a delete tells its primary key only`() throws {
        let view = ChangeView(todos.relation, past: .keysOfDeleted)
        #expect(
            try todos.body(.delete, old: ["7", "a", "t", "{b}"], isFull: true, view: view)
                == head + #""DELETE","# + time + #""errors":null,"# + columns + #","old_record":{"id":7}}"#)
        #expect(
            try todos.body(.update, old: ["7", "a", "t", "{b}"], isFull: true, new: ["7", "b", "t", "{}"], view: view)
                .hasSuffix(#""old_record":{"id":7,"title":"a","done":true,"tags":["b"]}}"#))
    }

    @Test func `who was not allowed to see the old row is told its primary key only`() throws {
        let view = ChangeView(todos.relation, past: .keys)
        #expect(
            try todos.body(
                .update, old: ["7", "a", "t", "{b}"], isFull: true, new: ["8", "b", .unchanged, "{}"], view: view
            )
            .hasSuffix(
                #""record":{"id":8,"title":"b","done":true,"tags":[]},"old_record":{"id":7}}"#))
        #expect(
            try todos.body(.delete, old: ["7", "a", "t", "{b}"], isFull: true, view: view)
                .hasSuffix(#""old_record":{"id":7}}"#))
    }

    @Test func `a row that moved out of view is told as a delete of what it was`() throws {
        let update: [Cell] = ["7", "a", "t", "{b}"]
        #expect(
            try todos.body(.update, old: update, isFull: true, new: ["7", "b", "f", "{}"], asDeparture: true)
                == head + #""DELETE","# + time + #""errors":null,"# + columns
                + #","old_record":{"id":7,"title":"a","done":true,"tags":["b"]},"tidewire":{"moved":"out"}}"#)
        let large: [Cell] = ["7", .init(stringLiteral: String(repeating: "a", count: 500)), "t", "{b}"]
        #expect(
            try todos.body(.update, old: large, isFull: true, new: large, maximum: 600, asDeparture: true)
                .hasSuffix(
                    #""old_record":{"id":7,"done":true,"tags":["b"]},"tidewire":{"moved":"out"}}"#))
    }

    @Test func `an identity by index is what an old row holds`() throws {
        let stage = ChangeStage(
            relation: ChangeStage.relation(
                [
                    ChangeStage.column("id", 20, isKey: true, isIdentity: false),
                    ChangeStage.column("code", 25, isIdentity: true),
                ], identity: .index))
        let body = try stage.body(.delete, old: [nil, "x"])
        #expect(body.hasSuffix(#","old_record":{"code":"x"}}"#))
        let view = ChangeView(stage.relation, past: .keysOfDeleted)
        #expect(try stage.body(.delete, old: [nil, "x"], view: view).hasSuffix(#","old_record":{}}"#))
        #expect(try stage.body(.update, new: ["1", "x"]).hasSuffix(#""old_record":{"code":"x"}}"#))
    }

    @Test func `a view tells its columns only`() throws {
        let view = ChangeView(todos.relation, columns: [1, 2])
        let list = #""columns":[{"name":"title","type":"text"},{"name":"done","type":"bool"}]"#
        #expect(
            try todos.body(.update, new: ["7", "a", "t", "{}"], view: view)
                == head + #""UPDATE","# + time + #""errors":null,"# + list
                + #","record":{"title":"a","done":true},"old_record":{}}"#)
        let none = ChangeView(todos.relation, columns: [])
        #expect(
            try todos.body(.delete, old: ["7", nil, nil, nil], view: none)
                == head + #""DELETE","# + time + #""errors":null,"columns":[],"old_record":{}}"#)
    }

    @Test func `names are quoted and types have the name they were declared with`() throws {
        var relation = ChangeStage.relation([ChangeStage.column("a\"b", 23, isKey: true)])
        relation.schema = "s\\"
        relation.name = "t\n"
        let view = ChangeView(
            relation,
            visible: [VisibleColumn(index: 0, typeName: "positive", rendering: .plain(BuiltInType.rendering(of: 23)))])
        #expect(
            try ChangeStage(relation: relation).body(.insert, new: ["1"], view: view)
                == #"{"schema":"s\\","table":"t\n","type":"INSERT","# + time
                + #""errors":null,"columns":[{"name":"a\"b","type":"positive"}],"record":{"a\"b":1}}"#)
    }

    // MARK: Errors

    @Test func `a change that is too large is told with its small values`() throws {
        let exact = String(repeating: "x", count: 62)
        let large = String(repeating: "y", count: 5000)
        let body = try todos.body(.insert, new: ["1", .text(exact), nil, .text("{" + large + "}")], maximum: 4000)
        #expect(
            body
                == head + #""INSERT","# + time + #""errors":["Error 413: Payload Too Large"],"# + columns
                + #","record":{"id":1,"title":"\#(exact)"}}"#)
        let longer = try todos.body(.insert, new: [.text(large), .text(exact + "x"), "t", "{}"], maximum: 4000)
        #expect(longer.hasSuffix(#","record":{"done":true,"tags":[]}}"#))
    }

    @Test func `a body is too large from one byte on`() throws {
        let whole = try todos.body(.delete, old: ["7", "abc", "t", "{}"], isFull: true)
        #expect(
            try todos.body(.delete, old: ["7", "abc", "t", "{}"], isFull: true, maximum: whole.utf8.count) == whole)
        let cut = try todos.body(
            .delete, old: ["7", "abc", "t", "{}"], isFull: true, maximum: whole.utf8.count - 3)
        #expect(cut.contains("Error 413"))
    }

    @Test func `an update that is too large drops from both rows`() throws {
        let large = Cell.text(String(repeating: "z", count: 300))
        let body = try todos.body(
            .update, old: ["1", large, nil, "{a}"], isFull: true, new: ["1", .unchanged, nil, "{b}"], maximum: 500)
        #expect(body.hasSuffix(#","record":{"id":1,"tags":["b"]},"old_record":{"id":1,"tags":["a"]}}"#))
    }

    @Test func `trap 9: refused changes have a time and columns all the same`() {
        let view = ChangeView(todos.relation)
        let encoder = ChangeEncoder(maximumBodyBytes: 1000)
        #expect(
            written {
                encoder.append(.unauthorized, of: .update, view, commitTime: todos.commitTime, to: &$0)
            }
                == head + #""UPDATE","# + time
                + #""errors":["Error 401: Unauthorized"],"columns":[],"record":{},"old_record":{}}"#)
        #expect(
            written {
                encoder.append(.noPrimaryKey, of: .insert, view, commitTime: todos.commitTime, to: &$0)
            }
                == head + #""INSERT","# + time
                + #""errors":["Error 400: Bad Request, no primary key"],"columns":[],"record":{}}"#)
    }

    @Test func `a damaged row is refused and leaves nothing behind`() throws {
        let bytes = ChangeStage.stored(.insert, new: ["1", "abc", "t", "{}"])
        // Index of the second value's kind.
        let kind = try #require(bytes.lastIndex(of: UInt8(ascii: "c"))) - 7
        var damaged = bytes
        damaged[kind] = UInt8(ascii: "x")
        var part = try TransactionPart(damaged.span.bytes)
        guard let change = try part.next() else { return }
        var writer = ByteWriter()
        writer.append("before")
        let view = ChangeView(todos.relation)
        var isRefused = false
        do {
            try ChangeEncoder(maximumBodyBytes: 1000).append(change, view, commitTime: 0, to: &writer)
        } catch {
            isRefused = true
        }
        #expect(isRefused)
        #expect(writer.bytes.text == "before")
    }

    @Test func `a row with fewer or more columns than its relation is told as far as both go`() throws {
        #expect(try todos.body(.insert, new: ["1"]).hasSuffix(#""record":{"id":1}}"#))
        let more: [Cell] = ["1", "a", "t", "{}", "extra"]
        #expect(try todos.body(.insert, new: more).hasSuffix(#""tags":[]}}"#))
        #expect(try todos.body(.insert, new: []).hasSuffix(#""record":{}}"#))
        #expect(try todos.body(.insert, new: [.binary([1]), "a"]).hasSuffix(#""record":{"title":"a"}}"#))
    }

    // MARK: Time

    @Test(
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (951_782_400_000_000, "2000-02-29T00:00:00.000Z"),
            (1_772_360_430_456_789, "2026-03-01T10:20:30.456Z"), (1_772_360_430_000_999, "2026-03-01T10:20:30.000Z"),
            (1_709_251_199_999_999, "2024-02-29T23:59:59.999Z"), (-1, "1969-12-31T23:59:59.999Z"),
            (-62_167_219_200_000_000, "0000-01-01T00:00:00.000Z"), (4_102_444_800_005_000, "2100-01-01T00:00:00.005Z"),
            (253_402_300_799_999_999, "9999-12-31T23:59:59.999Z"), (.max, "9999-12-31T23:59:59.999Z"),
            (.min, "0000-01-01T00:00:00.000Z"),
        ] as [(Int64, String)])
    func `trap 9: a commit's time has three digits of a second and a Z`(time: Int64, expected: String) throws {
        var stage = todos
        stage.commitTime = time
        #expect(try stage.body(.insert, new: []).contains("\"commit_timestamp\":\"\(expected)\""))
    }

    // MARK: Types of the user's own

    @Test func `structured values are objects and arrays`() throws {
        let point = ValueRendering.composite([
            .init("x", .plain(BuiltInType.rendering(of: 23))), .init("label", .plain(BuiltInType.rendering(of: 25))),
        ])
        let relation = ChangeStage.relation([
            ChangeStage.column("id", 23, isKey: true), ChangeStage.column("p", 90_001),
            ChangeStage.column("ps", 90_002),
        ])
        let view = ChangeView(
            relation,
            visible: [
                VisibleColumn(index: 0, typeName: "int4", rendering: .plain(BuiltInType.rendering(of: 23))),
                VisibleColumn(index: 1, typeName: "spot", rendering: point),
                VisibleColumn(index: 2, typeName: "_spot", rendering: .array(of: point)),
            ])
        #expect(
            try ChangeStage(relation: relation).body(
                .insert, new: ["1", #"(1,"a ""b""")"#, #"{"(1,)",NULL,"(,\"x,y\")"}"#], view: view
            ).hasSuffix(
                #","record":{"id":1,"p":{"x":1,"label":"a \"b\""},"#
                    + #""ps":[{"x":1,"label":null},null,{"x":null,"label":"x,y"}]}}"#))
    }

    /// Checks that the body is one JSON value for any row image.
    @Test(arguments: seeds(20))
    func `a body is JSON whatever the row`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let types: [UInt32] = [16, 20, 25, 700, 1700, 114, 1114, 1184, 17, 1007, 1009, 3802]
        let texts = [
            "", "t", "1", "-1.5e-07", "NaN", "a\"b\\c\n\u{1}é🙂", "{1,NULL}", "{\"a\\\"\",b}", "2026-03-01 10:20:30+00",
            "\\x00ff", "{\"k\":[1]}", "(1,2)",
        ]
        for _ in 0..<50 {
            let columns = (0..<Int.random(in: 1...6, using: &random)).map { index in
                ChangeStage.column("c\(index)", random.pick(types), isKey: index == 0)
            }
            let stage = ChangeStage(relation: ChangeStage.relation(columns))
            func row() -> [Cell] {
                columns.map { column in
                    let isJSON = column.typeOID == 114 || column.typeOID == 3802
                    return random.pick([.null, .unchanged, .text(isJSON ? #"{"a": [1]}"# : random.pick(texts))])
                }
            }
            let body = try stage.body(
                random.pick([.insert, .update, .delete]), old: row(), isFull: Bool.random(using: &random), new: row(),
                maximum: random.pick([200, 1 << 20]))
            var scanner = JSONScanner(Array(body.utf8).span.bytes)
            var token = try scanner.next()
            while token != .end { token = try scanner.next() }
        }
    }
}
