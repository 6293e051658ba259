import Change
import Policy
import TestSupport
import Testing

@testable import Catalog
@testable import Judging

/// Tests of the SQL that converts a stored value when its column has another type now.
@Suite(.within(minutes: 5)) struct ValueConversionTests {
    private static func column(_ type: TypeFacts, declared: String, oid: UInt32? = nil) -> CatalogColumn {
        CatalogColumn(
            facts: ColumnFacts(name: "c", type: type, collation: .none), number: 1, typeOID: oid ?? type.oid,
            typeName: declared, declaredType: declared, declaredCollation: nil, rendering: .scalar(oid: type.oid),
            isGenerated: false, isPublished: true)
    }

    private static let mood = TypeFacts(oid: 90_001, name: "public.mood", shape: .enumeration(labels: ["a", "b"]))
    private static let pair = TypeFacts(oid: 90_002, name: "public.pair", shape: .other)

    @Test func `a value is read as what it was, then cast to what its column is`() {
        let number = Self.column(TypeFacts(oid: 1700, name: "numeric"), declared: "numeric(8,2)")
        #expect(
            ValueConversion.expression(from: 23, to: number) == #"CAST(CAST($1 AS pg_catalog."int4") AS numeric(8,2))"#)
        #expect(
            ValueConversion.expression(from: 1009, to: number)
                == #"CAST(CAST($1 AS pg_catalog."_text") AS numeric(8,2))"#)
        let label = Self.column(Self.mood, declared: "public.mood")
        #expect(ValueConversion.expression(from: 25, to: label) == "CAST($1 AS public.mood)")
        #expect(ValueConversion.expression(from: 90_009, to: label) == "CAST($1 AS public.mood)")
    }

    /// Checks that the hub's login runs no user-defined code: no casts, and no checks of domains.
    @Test func `nobody's code is run for it`() {
        let text = Self.column(TypeFacts(oid: 25, name: "text"), declared: "text")
        #expect(ValueConversion.expression(from: Self.mood.oid, to: text) == nil)
        #expect(ValueConversion.expression(from: Self.pair.oid, to: text) == nil)
        #expect(ValueConversion.expression(from: 25, to: Self.column(Self.pair, declared: "public.pair")) == nil)
        let moods = TypeFacts(oid: 90_003, name: "public.mood[]", shape: .array(of: Self.mood))
        #expect(ValueConversion.expression(from: 1009, to: Self.column(moods, declared: "public.mood[]")) == nil)
        let domain = Self.column(TypeFacts(oid: 25, name: "text"), declared: "public.checked", oid: 90_004)
        #expect(ValueConversion.expression(from: 23, to: domain) == #"CAST(CAST($1 AS pg_catalog."int4") AS text)"#)
    }

    @Test func `what is absent is asked of nobody`() {
        let question = Question(sql: "$1 = $2", slots: [0, 1], constants: [])
        #expect(JudgedQuestion(question, row: [.text([0x61]), .null])?.values == ["a", nil])
        #expect(JudgedQuestion(question, row: [.text([0x61]), .absent]) == nil)
    }
}
