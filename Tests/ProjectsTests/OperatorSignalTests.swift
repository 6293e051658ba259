import Bytes
import Change
import TestSupport
import Testing

@testable import Projects

@Suite(.within(minutes: 1)) struct OperatorSignalTests {
    private static let column = #"{"name":"id","type":"int4","type_oid":23,"type_modifier":-1,"key":true}"#
    private static let members = [
        ("system", #""7312345678901234567""#), ("database", "16384"), ("reading", #""00000000deadbeef""#),
        ("lsn", #""0/1B2C3D4""#), ("part", "3"), ("last", "true"),
        (
            "table",
            #"{"schema":"public","name":"notes","oid":16400,"columns":[\#(column),{"name":"body","type":"text","type_oid":25,"type_modifier":-1,"key":false}]}"#
        ),
        ("rows", #"[["1","a"],["2",null],["3",{}]]"#),
    ]

    private static func body(_ members: [(String, String)]) -> [UInt8] {
        Array(("{" + members.map { "\"\($0)\":\($1)" }.joined(separator: ",") + "}").utf8)
    }

    private static func refusal(_ name: String, _ body: String) -> String? {
        do throws(OperatorSignal.Refusal) {
            _ = try OperatorSignal(name, Array(body.utf8))
            return nil
        } catch {
            return error.reason
        }
    }

    @Test func `rows are read as they are given`() throws {
        let rows = try #require(try OperatorSignal("backfill", Self.body(Self.members)).rows)
        #expect(rows.reading == 0xdead_beef && rows.lsn == LSN(0x1B2_C3D4) && rows.part == 3 && rows.isLast)
        let relation = try RelationCodec.decode(rows.schema.span.bytes)
        #expect(relation.description == "public.notes" && relation.keyColumns == [0])
        let images: [[UInt8]] = [
            [0, 2, 0x74, 0, 0, 0, 1, 0x31, 0x74, 0, 0, 0, 1, 0x61], [0, 2, 0x74, 0, 0, 0, 1, 0x32, 0x6e],
            [0, 2, 0x74, 0, 0, 0, 1, 0x33, 0x75],
        ]
        #expect(rows.rows.map(\.image) == images)
        #expect(BackfillBody.table(of: rows) == "public.notes")
    }

    @Test func `rows that are none are refused with what is wanted`() {
        // Each member in turn is missing or has another value.
        for index in Self.members.indices {
            var fewer = Self.members
            fewer.remove(at: index)
            #expect(Self.refusal("backfill", String(decoding: Self.body(fewer), as: UTF8.self)) != nil)
            for other in [
                "null", "-1", "4294967296", #""x""#, "[]", "{}", "[[]]", #"[["1"]]"#, #"[[null,"a"]]"#, #"[[{},"a"]]"#,
                "[[1,2]]",
            ] {
                guard Self.members[index].0 != "rows" || other != "[]" else { continue }
                var wrong = Self.members
                wrong[index].1 = other
                #expect(
                    Self.refusal("backfill", String(decoding: Self.body(wrong), as: UTF8.self)) != nil,
                    "\(wrong[index])")
            }
        }
        let unkeyed = Self.body(Self.members.map { ($0, $1.replacing(#""key":true"#, with: #""key":false"#)) })
        #expect(Self.refusal("backfill", String(decoding: unkeyed, as: UTF8.self))?.contains("without a key") == true)
        let deep = #"{"rows":[[[[[["1"]]]]]]}"#
        #expect(Self.refusal("backfill", deep) == "the body is no JSON object")
    }

    @Test func `each signal has its own members`() throws {
        #expect(try OperatorSignal("pause", Array(#"{"seconds":5}"#.utf8)).duration == .seconds(5))
        #expect(try OperatorSignal("rotate", []).text.isEmpty)
        for (name, body) in [
            ("mark", ""), ("mark", "{}"), ("mark", #"{"text":1}"#), ("mark", #"{"text":"a","seconds":5}"#),
            ("pause", #"{"seconds":0}"#), ("pause", #"{"seconds":86401}"#), ("rotate", #"{"rows":[]}"#),
            ("explode", ""),
            ("mark", #"{"text":"\#(String(repeating: "x", count: 1025))"}"#), ("resume", "[]"), ("resume", "{"),
        ] {
            #expect(Self.refusal(name, body) != nil, "\(name) \(body.prefix(40))")
        }
    }
}
