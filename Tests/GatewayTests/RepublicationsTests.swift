import Catalog
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 1)) struct RepublicationsTests {
    private func table(_ oid: UInt32, by entries: String) -> CatalogTable {
        CatalogTable(
            oid: oid, schema: "public", name: "t\(oid)", columns: [], primaryKey: [], identity: .full,
            hasRowSecurity: false, forcesRowSecurity: false, hasPolicies: false, operations: .all,
            publishedBy: entries)
    }

    @Test func `a table that is in the publication by another row misses what was before`() {
        var known = Republications()
        known.take([table(1, by: "10"), table(2, by: "11")], at: 100)
        #expect(known.wholeFrom(1) == 0 && known.latest == 0)
        known.take([table(1, by: "12"), table(2, by: "11")], at: 150)
        // Who stands at the end itself may have missed it, where nothing else was written meanwhile.
        #expect(known.wholeFrom(1) == 151 && known.wholeFrom(2) == 0 && known.latest == 151)
        known.take([table(1, by: "12"), table(2, by: "11")], at: 200)
        #expect(known.wholeFrom(1) == 151)
    }

    @Test func `one that was seen to be away is remembered`() {
        var known = Republications()
        known.take([table(1, by: "10"), table(2, by: "11")], at: 100)
        known.take([table(2, by: "11")], at: 120)
        known.take([table(1, by: "12"), table(2, by: "11")], at: 150)
        #expect(known.wholeFrom(1) == 151)
    }

    @Test func `what comes and goes for ever is not remembered for ever`() {
        var known = Republications()
        for number in 0..<UInt32(5000) {
            known.take([table(1, by: "10"), table(10 + number, by: "\(number)")], at: UInt64(number))
            #expect(known.count <= 1025)
        }
        known.take([table(1, by: "11")], at: 9000)
        #expect(known.wholeFrom(1) == 9001)
    }
}
