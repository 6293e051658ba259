import Change
import Diagnostics
import Policy
import TestSupport
import Testing

@testable import Catalog
@testable import Delivery

/// Tests of the state machine that decides if a pipeline waits, and for what.
@Suite(.within(minutes: 1)) struct DeliveryWaitTests {
    private typealias Request = DeliveryWait.CatalogRequest

    private static func recall() -> RecallRequest { RecallRequest(segment: 0, position: 0, end: 0, changes: 0) }

    @Test func `only the answer with the ticket ends a wait`() {
        var wait = DeliveryWait()
        #expect(wait.isReading)
        wait.begin(.recalling(ticket: 7, Self.recall()))
        #expect(wait.recalled(6) == nil && wait.converted(7) == nil && wait.computed(7) == nil && !wait.isReading)
        #expect(wait.recalled(7) != nil && wait.isReading)
        #expect(wait.recalled(7) == nil)

        wait.begin(.heldByMessages)
        #expect(wait.isHeldByMessages && !wait.isReading)
        wait.messagesAreDelivered()
        #expect(wait.isReading)
    }

    @Test func `a late delivery of messages ends no other wait`() {
        var wait = DeliveryWait()
        wait.begin(.recalling(ticket: 7, Self.recall()))
        wait.messagesAreDelivered()
        #expect(!wait.isReading)
    }

    @Test func `the catalog's newest answer counts, for the current entry alone`() {
        var wait = DeliveryWait()
        #expect(wait.awaitCatalog(seeing: 5, at: 0) == Request(ticket: 1, xid: 5))
        #expect(wait.awaitsTransaction && !wait.isHeldByTables)
        // A question is not answered yet, so none is asked again.
        #expect(wait.askAgain(isCurrent: true) == nil)
        wait.catalogRefreshed(1, false)
        #expect(!wait.isReading)
        #expect(wait.askAgain(isCurrent: true) == Request(ticket: 2, xid: 5))
        wait.catalogRefreshed(1, true)
        #expect(!wait.isReading)
        wait.catalogRefreshed(2, true)
        #expect(wait.isReading && wait.hasCatalog)
        wait.finishEntry()
        #expect(!wait.hasCatalog)
    }

    @Test func `a transaction that the catalog does not show is given up, and a stale catalog does not count`() {
        var wait = DeliveryWait()
        var last = wait.awaitCatalog(seeing: 5, at: 0)
        func again(isCurrent: Bool) -> Request? {
            wait.catalogRefreshed(last.ticket, false)
            guard let next = wait.askAgain(isCurrent: isCurrent) else { return nil }
            last = next
            return next
        }
        for _ in 0..<Limits.maximumVisibilityWaits { #expect(again(isCurrent: false)?.hasGivenUp == false) }
        for _ in 1..<Limits.maximumVisibilityWaits { #expect(again(isCurrent: true)?.hasGivenUp == false) }
        let given = again(isCurrent: true)
        #expect(given?.hasGivenUp == true && given?.xid == nil)
        #expect(again(isCurrent: true)?.hasGivenUp == false && last.xid == nil)
    }

    @Test func `a new snapshot ends the wait for policies and for conversions, and no other`() {
        var wait = DeliveryWait()
        wait.awaitPolicies(at: 0)
        #expect(wait.isHeldByPolicies)
        wait.hear(3)
        #expect(wait.isReading)
        wait.begin(.converting(ticket: 1, ConversionRequest(from: 0)))
        wait.hear(4)
        #expect(wait.isReading)
        // The values that were being converted have the types of the earlier catalog.
        #expect(wait.converted(1) == nil)
        wait.begin(.recalling(ticket: 2, Self.recall()))
        wait.hear(5)
        #expect(!wait.isReading)
        #expect(wait.recalled(2) != nil)
        _ = wait.awaitCatalog(seeing: nil, at: 0)
        wait.hear(6)
        #expect(!wait.isReading)
    }

    @Test func `clients are told each time they have waited for long`() {
        var wait = DeliveryWait()
        let long = Limits.maximumCatalogAbsence.wholeNanoseconds
        #expect(wait.hasWaitedTooLong(at: 2 * long) == false)
        wait.awaitPolicies(at: 10)
        wait.hear(1)
        // A second wait for the same entry counts from the beginning of the first one.
        _ = wait.awaitCatalog(seeing: 5, at: 20)
        #expect(wait.hasWaitedTooLong(at: 10 + long) == false)
        #expect(wait.hasWaitedTooLong(at: 11 + long) == true)
        #expect(wait.hasWaitedTooLong(at: 11 + long) == false)
        #expect(wait.hasWaitedTooLong(at: 12 + 2 * long) == true)
        wait.catalogRefreshed(1, true)
        wait.finishEntry()
        _ = wait.awaitCatalog(seeing: 6, at: 30 + 2 * long)
        #expect(wait.hasWaitedTooLong(at: 30 + 3 * long) == false)
    }

    @Test func `tables without listeners are passed, and others are reported when they wait for long`() {
        var wait = DeliveryWait()
        let catalog = StubCatalog(version: 1, seeing: [])
        let long = Limits.heldTablePatience.wholeNanoseconds
        wait.passOver(unheard: [1, 2])
        #expect(wait.mayPass([2, 1], of: 5, catalog) == true)
        #expect(wait.takePassed() == [HeldTable(table: 1, xid: 5), HeldTable(table: 2, xid: 5)])
        #expect(wait.takePassed() == [])
        #expect(wait.mayPass([2, 3], of: 6, catalog) == false)
        #expect(wait.takePassed() == [])
        _ = wait.awaitCatalog(seeing: 6, at: 10)
        #expect(wait.isHeldByTables)
        #expect(wait.tablesHeldLong(at: 10 + long) == [])
        #expect(wait.tablesHeldLong(at: 11 + long) == [HeldTable(table: 2, xid: 6), HeldTable(table: 3, xid: 6)])
        wait.resumeIfUnlistened()
        #expect(!wait.isReading)
        wait.passOver(unheard: [2, 3, 4])
        wait.resumeIfUnlistened()
        #expect(wait.isReading && !wait.isHeldByTables)
    }

    @Test func `an entry that waits as a whole does not go on because tables have no listeners`() {
        var wait = DeliveryWait()
        _ = wait.awaitCatalog(seeing: nil, at: 0)
        wait.passOver(unheard: [1])
        wait.resumeIfUnlistened()
        #expect(!wait.isReading && !wait.awaitsTransaction)
        #expect(wait.tablesHeldLong(at: .max) == [])
    }

    // MARK: The catalog as it is

    @Test func `a transaction counts as seen once the loop has heard of the snapshot that shows it`() {
        var wait = DeliveryWait()
        let catalog = StubCatalog(version: 2, seeing: [5])
        wait.hear(1)
        #expect(!wait.hasSeen(5, catalog))
        wait.hear(2)
        #expect(wait.hasSeen(5, catalog) && !wait.hasSeen(6, catalog))
        #expect(wait.mayPass([1], of: 5, catalog) == true)
        #expect(!wait.hasSeen(5, StubCatalog(version: 2, seeing: [5], isCurrent: false)))
    }

    @Test func `a mark is passed by whom it does not concern, and by a catalog that shows it`() {
        var wait = DeliveryWait()
        wait.hear(2)
        let catalog = StubCatalog(version: 2, seeing: [5])
        wait.passOver(unheard: [1])
        #expect(wait.mayPass(CatalogMark(xid: 5, table: 3), catalog) == true)
        #expect(wait.mayPass(CatalogMark(xid: 6, table: 3), catalog) == false)
        #expect(wait.mayPass(CatalogMark(xid: 6, table: 1), catalog) == true)
        #expect(wait.takePassed() == [HeldTable(table: 1, xid: 6)])
        // A mark without a table concerns every channel. A mark without a transaction needs a catalog that was read
        // after the mark.
        #expect(wait.mayPass(CatalogMark(xid: 6, table: 0), catalog) == false)
        #expect(wait.mayPass(CatalogMark(xid: 0, table: 1), catalog) == false)
        _ = wait.awaitCatalog(seeing: nil, at: 0)
        wait.catalogRefreshed(1, true)
        #expect(wait.mayPass(CatalogMark(xid: 0, table: 1), catalog) == true)
    }
}

/// Catalog that shows some transactions.
private final class StubCatalog: CatalogSource {
    let snapshot: CatalogSnapshot?
    let isCurrent: Bool
    private let seen: Set<UInt32>

    init(version: UInt64, seeing seen: Set<UInt32>, isCurrent: Bool = true) {
        snapshot = CatalogSnapshot(version: version, publication: "p", tables: [], text: .plainUTF8)
        self.seen = seen
        self.isCurrent = isCurrent
    }

    var unannounced: Set<UInt32> { [] }

    func watchDefinitions() -> @Sendable () -> Bool { { true } }
    func hasSeen(_ xid: UInt32) -> Bool { seen.contains(xid) }
    func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void) {}
    func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of loops: Int) {}
    func addBindings(_ count: Int) {}
    func refresh(seeing xid: UInt32?, then: @escaping @Sendable (CatalogSnapshot?) -> Void) {}
    func resolved(_ request: BindingRequest) -> BindingOutcome? { nil }
    func resolve(
        _ requests: [BindingRequest],
        then: @escaping @Sendable (_ outcomes: [BindingOutcome], _ version: UInt64) -> Void
    ) {}
    func stop() {}
}
