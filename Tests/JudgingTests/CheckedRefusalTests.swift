import Policy
import TestSupport
import Testing

@testable import Catalog
@testable import Judging

/// Tests of PostgreSQL's refusals: they count only if definitions did not change during the question.
@Suite(.within(minutes: 5)) struct CheckedRefusalTests {
    /// Result of the catalog's reading after PostgreSQL's answer.
    enum Reading: CaseIterable { case sameDefinitions, otherDefinitions, nothing }

    @Test(arguments: Reading.allCases)
    func `a membership that cannot be read is refused only under the same definitions`(reading: Reading) throws {
        let stage = try JudgingStage("CREATE TABLE crew (room int); INSERT INTO crew VALUES (1)")
        try stage.run("GRANT SELECT ON crew TO READER")
        let judge = try stage.judge()
        let asked = ["crew", "members"].map { table in
            Membership(
                table: 0, keySlot: 0, condition: .undecided, reader: .caller,
                fillSQL: "SELECT m.room FROM public.\(table) m")
        }
        let found = Awaited<[MembershipFill]>()
        judge.fill(
            asked.map { (membership: $0, subject: stage.subject(sub: 1)) }, checkedBy: ReadCatalog(reading)
        ) { found.set($0) }
        let fills = try #require(found.wait())
        #expect("\(fills[0])".hasPrefix("filled"))
        #expect("\(fills[1])" == (reading == .sameDefinitions ? "unreadable" : "unavailable"))
    }

    @Test(arguments: Reading.allCases)
    func `a term that fails has failed only under the same definitions`(reading: Reading) throws {
        let stage = try JudgingStage()
        let term = AskedTerm(sql: "public.gone()", type: TypeFacts(oid: 25, name: "text"), isBuiltIn: false)
        let found = Awaited<[AskedTerm: AskedAnswer]?>()
        try stage.judge().evaluate([term], as: stage.subject(sub: 1), checkedBy: ReadCatalog(reading)) {
            found.set($0)
        }
        let answers = try #require(found.wait())
        #expect(answers?[term] == (reading == .sameDefinitions ? .failed : nil))
    }
}

/// Catalog whose next reading finds the same definitions, other ones, or nothing.
private final class ReadCatalog: CatalogSource {
    private let reading: CheckedRefusalTests.Reading

    init(_ reading: CheckedRefusalTests.Reading) { self.reading = reading }

    var snapshot: CatalogSnapshot? { nil }
    var isCurrent: Bool { false }
    var unannounced: Set<UInt32> { [] }

    func watchDefinitions() -> @Sendable () -> Bool { { [reading] in reading != .otherDefinitions } }
    func refresh(seeing xid: UInt32?, then: @escaping @Sendable (CatalogSnapshot?) -> Void) {
        let found = CatalogSnapshot(version: 1, publication: "p", tables: [], text: .plainUTF8)
        then(reading == .nothing ? nil : found)
    }
    func hasSeen(_ xid: UInt32) -> Bool { false }
    func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void) {}
    func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of loops: Int) {}
    func addBindings(_ count: Int) {}
    func resolved(_ request: BindingRequest) -> BindingOutcome? { nil }
    func resolve(
        _ requests: [BindingRequest],
        then: @escaping @Sendable (_ outcomes: [BindingOutcome], _ version: UInt64) -> Void
    ) {}
    func stop() {}
}
