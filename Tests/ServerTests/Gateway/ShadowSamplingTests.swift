import Diagnostics
import Policy
import Testing

@testable import Server

/// What happens where PostgreSQL says something else than was decided without it.
@Suite struct ShadowSamplingTests {
    private let table = CatalogTable(
        oid: 7, schema: "public", name: "notes", columns: [], primaryKey: [], identity: .full, hasRowSecurity: true,
        forcesRowSecurity: false, hasPolicies: true, operations: .all)
    private let binding = PolicyBinding(
        role: "reader", table: 7, rowPolicy: RowPolicy(.constant(Array("t".utf8), TypeFacts(oid: 16, name: "boolean"))),
        parts: [], combinedSQL: "true", row: JudgedRow(relation: "notes", schema: "public", columns: []), version: 1,
        warning: nil)
    private let claimant = Claimant(role: "reader", claims: "{}", identity: 0)
    private let settings = FilterCheck.Settings(maximumListElements: 10, maximumKeys: 10, maximumWork: 1000)

    @Test func `an answer that contradicts is noticed, and one that agrees or is missing is not`() {
        var courier = Courier(maximumBodyBytes: 1 << 20, deflater: nil)
        let number = courier.policies.add(PolicyEntry(.always, binding, of: table, claimant))
        let shadow = PendingQuestion.Shadow(policy: number, judged: binding.judged.identity, expected: true)
        courier.compare(shadow, true)
        courier.compare(shadow, nil)
        let none = courier.takeContradicted()
        #expect(none.isEmpty)
        // Another policy has that number by now.
        courier.compare(PendingQuestion.Shadow(policy: number, judged: .max, expected: true), false)
        let stale = courier.takeContradicted()
        #expect(stale.isEmpty)
        courier.compare(shadow, false)
        let contradicted = courier.takeContradicted()
        #expect(contradicted == [number])
    }

    @Test func `a policy that was contradicted is PostgreSQL's to decide from there on`() throws {
        guard case .residual(let residual) = binding.rowPolicy.residual(claims: [], role: [], answers: [:]) else {
            throw Missing()
        }
        let held = HeldPolicy(binding, residual, [], number: 3)
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
