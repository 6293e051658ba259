import Bytes
import Policy
import System
import TestSupport
import Testing

@testable import Catalog
@testable import Gateway

@Suite(.within(minutes: 1)) struct DemotedPoliciesTests {
    private let directory = MemoryDirectory()

    private func policy(
        _ text: String, role: String = "reader", table: String = "notes", version: UInt64 = 1
    ) -> PolicyBinding {
        PolicyBinding(
            role: role, table: 7, rowPolicy: RowPolicy(.constant(Array("t".utf8), TypeFacts(oid: 16, name: "boolean"))),
            parts: [], combinedSQL: text, row: JudgedRow(relation: table, schema: "public", columns: []),
            version: version, warning: nil)
    }

    @Test func `a policy that PostgreSQL contradicted is not trusted again by another process`() {
        let first = DemotedPolicies(in: directory)
        #expect(first.add(policy("owner = auth.uid()")) && !first.add(policy("owner = auth.uid()", version: 2)))
        #expect(first.contains(policy("owner = auth.uid()", version: 3)), "it reads as before in another catalog")
        first.flush()
        let second = DemotedPolicies(in: directory)
        #expect(second.contains(policy("owner = auth.uid()")))
        for other in [
            policy("true"), policy("owner = auth.uid()", role: "other"), policy("owner = auth.uid()", table: "n"),
        ] {
            #expect(!second.contains(other))
        }
    }

    @Test func `if the record cannot be read, PostgreSQL decides on all, and the record stays as it is`() throws {
        let damaged = DemotedPolicies.encode([1, 2]).dropLast() + [0x77]
        let file = try directory.open(DemotedPolicies.fileName, for: .creating)
        try file.write(Array(damaged).rawBytes, at: 0)
        let record = DemotedPolicies(in: directory)
        #expect(record.contains(policy("true")) && !record.add(policy("true")))
        record.flush()
        let kept = try directory.open(DemotedPolicies.fileName, for: .reading).contents(atMost: 1 << 20)
        #expect(kept == Array(damaged))
    }

    @Test func `a policy that could not be written down is written later`() {
        let first = DemotedPolicies(in: directory)
        _ = first.add(policy("true"))
        directory.beFull(for: 1)
        #expect(first.flush() == false)
        #expect(!DemotedPolicies(in: directory).contains(policy("true")))
        #expect(first.flush() == true)
        #expect(DemotedPolicies(in: directory).contains(policy("true")))
    }

    @Test func `another version of the program judges anew`() throws {
        let first = DemotedPolicies(in: directory)
        _ = first.add(policy("true"))
        first.flush()
        let bytes = try directory.open(DemotedPolicies.fileName, for: .reading).contents(atMost: 1 << 20)
        #expect(bytes.count == DemotedPolicies.encode([0]).count)
        let file = try directory.open(DemotedPolicies.fileName, for: .creating)
        try file.write(DemotedPolicies.encode([1], of: "0.0.1").rawBytes, at: 0)
        #expect(!DemotedPolicies(in: directory).contains(policy("true")))
    }
}
