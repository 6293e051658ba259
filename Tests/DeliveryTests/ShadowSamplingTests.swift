import Bytes
import Change
import Diagnostics
import Policy
import TestSupport
import Testing

@testable import Catalog
@testable import Delivery
@testable import Judging

/// Tests of the comparison of PostgreSQL's answers with the hub's own verdicts.
@Suite(.within(minutes: 5)) struct ShadowSamplingTests {
    private let table = CatalogTable(
        oid: 7, schema: "public", name: "notes", columns: [], primaryKey: [], identity: .full, hasRowSecurity: true,
        forcesRowSecurity: false, hasPolicies: true, operations: .all)
    private let binding = PolicyBinding(
        role: "reader", table: 7, rowPolicy: RowPolicy(.constant(Array("t".utf8), TypeFacts(oid: 16, name: "boolean"))),
        parts: [], combinedSQL: "true", row: JudgedRow(relation: "notes", schema: "public", columns: []), version: 1,
        warning: nil)
    private let subject = PolicySubject(role: "reader", claims: "{}", identity: 0)
    private let settings = FilterCheck.Settings(
        maximumListElements: 10, maximumKeys: 10, maximumWork: 1000, text: .plainUTF8)

    private static let relation = Relation(
        oid: 7, schema: "public", name: "notes", identity: .full,
        columns: [
            Column(name: "id", typeOID: 23, typeModifier: -1, typeName: "int4", isIdentity: true, isPrimaryKey: true)
        ])

    /// Returns a part of a transaction with changes of one-column rows: inserts, and deletes for negative numbers.
    private static func part(_ ids: [Int]) -> [UInt8] {
        var writer = ByteWriter(capacity: 1024)
        TransactionCodec.begin(
            TransactionInfo(xid: 1, commitLSN: LSN(100), endLSN: LSN(101), commitTime: 0), firstIndex: 0, to: &writer)
        for id in ids {
            var row = ByteWriter(capacity: 32)
            let text = Array(String(abs(id)).utf8)
            row.append(big: UInt16(1))
            row.append(UInt8(ascii: "t"))
            row.append(big: UInt32(text.count))
            row.append(text.asBytes)
            let bytes = row.copied()
            if id > 0 {
                TransactionCodec.append(
                    .insert, relation: 9, oldImage: .none, old: RawSpan(), new: bytes.asBytes, to: &writer)
            } else {
                TransactionCodec.append(
                    .delete, relation: 9, oldImage: .full, old: bytes.asBytes, new: RawSpan(), to: &writer)
            }
        }
        TransactionCodec.finish(endLSN: LSN(101), changeCount: UInt32(ids.count), in: &writer)
        return writer.copied()
    }

    /// Returns a router that has asked PostgreSQL about row 5.
    private func router(expecting expected: Bool) throws -> ChangeRouter {
        var router = ChangeRouter(maximumBodyBytes: 1 << 20, deflater: nil, ProjectMetrics())
        let number = router.bindings.policies.add(
            PolicyEntry(expected ? .always : .never, binding, of: table, subject))
        let bytes = Self.part([5])
        var part = try TransactionPart(bytes.asBytes)
        var row: [UInt8] = []
        var id: RowID?
        if let change = try part.next(), let new = change.new {
            row = new.bytes.copied()
            id = try RowColumns(["id"], in: Self.relation)?.id(of: new)
        }
        #expect(!row.isEmpty)
        let opinion = SecondOpinions.Opinion(
            policy: number, judged: binding.judged.identity, expected: expected, id: try #require(id), fingerprint: 9,
            row: row)
        #expect(router.opinions.add(opinion, key: ["id"]) == 1)
        return router
    }

    private func pass(_ ids: [Int], _ router: inout ChangeRouter) throws {
        let bytes = Self.part(ids)
        var part = try TransactionPart(bytes.asBytes)
        while let change = try part.next() { try router.opinions.pass(change, Self.relation) }
    }

    private func contradictions(_ router: inout ChangeRouter, at position: UInt64) throws -> [UInt32] {
        try router.confirmContradictions(at: LSN(position))
        return router.opinions.takeConfirmed()
    }

    @Test
    func `a table that says something else of a row that is as it was contradicts, and no sooner than that is sure`()
        throws
    {
        var router = try router(expecting: true)
        router.opinions.take(1, RowVisibilityAnswer(isVisible: false, position: LSN(500)))
        #expect(try contradictions(&router, at: 499).isEmpty)
        try pass([4, -6], &router)
        #expect(try contradictions(&router, at: 500) == [0])
        #expect(try contradictions(&router, at: 600).isEmpty)
    }

    @Test(arguments: [[5], [-5], [3, -5, 6]]) func `a row that changed meanwhile says nothing`(ids: [Int]) throws {
        var router = try router(expecting: true)
        try pass(ids, &router)
        router.opinions.take(1, RowVisibilityAnswer(isVisible: false, position: LSN(500)))
        #expect(try contradictions(&router, at: 600).isEmpty)
    }

    @Test func `a key of other columns and a schema without them leave nothing to say`() throws {
        var renamed = try router(expecting: true)
        var relation = Self.relation
        relation.columns[0].name = "key"
        let bytes = Self.part([6])
        var part = try TransactionPart(bytes.asBytes)
        if let change = try part.next() { try renamed.opinions.pass(change, relation) }
        #expect(renamed.opinions.isEmpty)

        var rekeyed = try router(expecting: true)
        let other = SecondOpinions.Opinion(
            policy: 0, judged: binding.judged.identity, expected: true, id: RowID(table: 7, hash: 1), fingerprint: 9,
            row: [])
        #expect(rekeyed.opinions.add(other, key: ["other"]) == 2)
        rekeyed.opinions.take(1, RowVisibilityAnswer(isVisible: false, position: LSN(5)))
        #expect(try contradictions(&rekeyed, at: 600).isEmpty)
    }

    @Test func `a table that agrees, cannot be asked, or is asked about another policy does not contradict`() throws {
        var agreeing = try router(expecting: true)
        agreeing.opinions.take(1, RowVisibilityAnswer(isVisible: true, position: LSN(5)))
        #expect(try contradictions(&agreeing, at: 600).isEmpty)
        var unasked = try router(expecting: true)
        unasked.opinions.take(1, nil)
        #expect(try contradictions(&unasked, at: 600).isEmpty)
        var other = try router(expecting: true)
        other.opinions.take(1, RowVisibilityAnswer(isVisible: false, position: LSN(5)))
        other.bindings.policies.remove(0)
        #expect(try contradictions(&other, at: 600).isEmpty)
        // A verdict that would be different now was right when the hub made it.
        var changed = try router(expecting: true)
        changed.opinions.take(1, RowVisibilityAnswer(isVisible: false, position: LSN(5)))
        changed.bindings.policies.replace(.never, of: 0)
        changed.bindings.declare(table: 7, columns: ["id"])
        changed.bindings.noteRelation(9, Self.relation, foreign: [])
        #expect(try contradictions(&changed, at: 600).isEmpty)
    }

    @Test func `a policy that was contradicted is PostgreSQL's to decide from there on`() throws {
        guard case .residual(let residual) = binding.rowPolicy.residual(claims: [], role: [], answers: [:]) else {
            throw Missing()
        }
        let held = ActivePolicy(binding, residual, [], number: 3)
        #expect(held.makePredicate(settings, isDemoted: false) == .always)
        let demoted = held.makePredicate(settings, isDemoted: true)
        #expect(demoted.mayAskPolicy && demoted.asker == 3 && demoted != .always)
    }

    @Test func `the first changes are looked at, and then fewer and fewer, but never none`() {
        var sampling = ShadowSampling()
        let before = sampling.isDue()
        #expect(!before)
        sampling.add(1, of: 7)
        sampling.add(2, of: 7)
        let due = (1...20_000).filter { _ in sampling.isDue() }
        #expect(due.prefix(4) == [1, 2, 4, 8])
        #expect(zip(due, due.dropFirst()).allSatisfy { $1 - $0 <= Int(Limits.shadowInterval) })
        #expect((19...30).contains(due.count))
        sampling.remove(1, of: 7)
        #expect(sampling.choose(7) == 2 && sampling.choose(8) == nil)
        sampling.remove(2, of: 7)
        let after = sampling.isDue()
        #expect(!after)
    }

    private struct Missing: Error {}
}
