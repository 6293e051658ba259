import Diagnostics
import Matching
import Policy
import TestSupport
import Testing

@testable import Catalog
@testable import Delivery

@Suite(.within(minutes: 5)) struct SchemaDeskTests {
    private func table(hasPolicies: Bool) -> CatalogTable {
        CatalogTable(
            oid: 7, schema: "public", name: "notes", columns: [], primaryKey: [], identity: .primaryKey,
            hasRowSecurity: false, forcesRowSecurity: false, hasPolicies: hasPolicies, operations: .all)
    }

    /// Checks a replaced table. Bindings to the old table would receive nothing, and clients would not learn about it.
    @Test func `a table in another's place is noticed, and what was placed before is known not to stand`() {
        var router = ChangeRouter(maximumBodyBytes: 1 << 20, deflater: nil, ProjectMetrics())
        var desk = SchemaRegistry()
        let (old, new) = (table(hasPolicies: false), table(hasPolicies: true))
        let first = desk.declare(old, &router)
        #expect(desk.declare(old, &router) == first)
        #expect(desk.holds(first, of: old))
        let before = desk.takeReplacement()
        #expect(!before)
        let second = desk.declare(new, &router)
        #expect(!desk.holds(first, of: old) && desk.holds(second, of: new))
        let (replaced, again) = (desk.takeReplacement(), desk.takeReplacement())
        #expect(replaced && !again)
        // A late answer declares the old table again. Then placements under the new table are not valid, either.
        let third = desk.declare(old, &router)
        #expect(!desk.holds(second, of: new) && !desk.holds(first, of: old) && desk.holds(third, of: old))
        let late = desk.takeReplacement()
        #expect(late)
    }
}
