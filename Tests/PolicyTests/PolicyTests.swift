import Bytes
import Policy
import Testing

let int4 = TypeFacts(oid: 23, name: "integer")
let text = TypeFacts(oid: 25, name: "text")
let bounds = Filter.Bounds(bytes: 10_000, conditions: 100, depth: 8)

@Suite struct PredicateTests {
    @Test func `an equality is found by its key and decides alone`() throws {
        let filter = try #require(try Filter.parse("id=eq.07", within: bounds))
        let check = try FilterCheck(
            filter, columns: [ColumnFacts(name: "id", type: int4)], settings: .init(maximumListElements: 100))
        let predicate = try Predicate(check, canonical: [])
        #expect(predicate.access == .anyOf([EqualityKey(slot: 0, form: .asIs, bytes: Array("7".utf8))]))
        #expect(predicate.isDecidedByAccess)
        #expect(predicate.question == nil)
    }
}
