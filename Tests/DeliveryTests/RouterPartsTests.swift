import Change
import Diagnostics
import EventLog
import Net
import Protocol
import TestSupport
import Testing

@testable import Catalog
@testable import Delivery

/// Tests of a router's parts: quotas of feeds, excluded snapshots, and losses.
@Suite(.within(minutes: 1)) struct RouterPartsTests {
    // MARK: Feeds

    @Test func `a feed gets as many changes as it may, and is told of once`() {
        let changes = Counter("changes_total", "Changes.")
        var feeds = FeedShares(changes)
        feeds.add(3, FeedShare(limit: 2))
        feeds.add(4, FeedShare(limit: nil))
        #expect(feeds.take(3) == true)
        #expect(feeds.take(3) == false)
        #expect(feeds.take(3) == nil)
        #expect(feeds.take(4) == true)
        #expect(changes.value == 3 && feeds[3]?.isFull == true && feeds[4]?.told == 1)
        #expect(feeds.takeFed() == [3, 4])
        #expect(feeds.takeFed() == [])
        // A feed whose quota is used up receives nothing.
        #expect(feeds.take(3) == nil)
        #expect(feeds.takeFed() == [])
        feeds.remove(3)
        #expect(feeds[3] == nil)
    }

    // MARK: Snapshots

    private static func audience(_ count: Int) -> Audience {
        var audience = Audience()
        for place in 0..<count {
            let recipient = Recipient(
                ConnectionID(seat: 0, generation: 0), isLegacy: false, wantsCompression: false, wantsMoves: place == 1,
                since: 10)
            _ = audience.add(
                Listener(channel: UInt32(place), form: .messages(.v1), topic: [], ids: [1]), recipient)
        }
        return audience
    }

    private static func transaction(_ xid: UInt32, at lsn: UInt64) -> TransactionInfo {
        TransactionInfo(xid: xid, commitLSN: LSN(lsn), endLSN: LSN(lsn + 1), commitTime: 0)
    }

    @Test func `a listener skips the transactions of its snapshot, until the log has passed all`() throws {
        var audience = Self.audience(2)
        var exclusions = SnapshotExclusions()
        let seen = SeenTransactions(visible: try #require(VisibleTransactions("10:10:")), end: 100)
        exclusions.add(seen, for: 0)
        exclusions.begin(Self.transaction(9, at: 50), endingBefore: 30, &audience)
        #expect(audience.recipients.map(\.rowsUpTo) == [30, 0])
        exclusions.begin(Self.transaction(10, at: 60), endingBefore: 40, &audience)
        #expect(audience.recipients[0].rowsUpTo == 30)
        // From the snapshot's end on, no transaction is skipped, whatever its number.
        exclusions.begin(Self.transaction(11, at: 100), endingBefore: 50, &audience)
        exclusions.begin(Self.transaction(9, at: 60), endingBefore: 60, &audience)
        #expect(audience.recipients[0].rowsUpTo == 30)
    }

    @Test func `only bindings that begin with rows skip what the rows show`() {
        var audience = Self.audience(1)
        audience.skip(0, before: 30)
        let withRows = Member(listener: 0, view: 0, binding: 0, beginsWithRows: true)
        let without = Member(listener: 0, view: 0, binding: 1)
        #expect([9, 10, 29, 30].map { audience.recipients[0].wants($0, withRows) } == [false, false, false, true])
        #expect([9, 10, 29, 30].map { audience.recipients[0].wants($0, without) } == [false, true, true, true])
    }

    @Test func `a listener that has gone excludes nothing`() throws {
        var audience = Self.audience(1)
        var exclusions = SnapshotExclusions()
        let seen = SeenTransactions(visible: try #require(VisibleTransactions("10:10:")), end: 100)
        exclusions.add(seen, for: 0)
        exclusions.remove(0)
        exclusions.begin(Self.transaction(9, at: 50), endingBefore: 30, &audience)
        #expect(audience.recipients[0].rowsUpTo == 0)
    }

    // MARK: Losses

    private static let table = CatalogTable(
        oid: 7, schema: "public", name: "notes", columns: [], primaryKey: [], identity: .full, hasRowSecurity: false,
        forcesRowSecurity: false, hasPolicies: false, operations: .all)

    private static func bindings() -> PlacedBindings {
        var bindings = PlacedBindings(deletesAreStrict: true, skipsSegments: false)
        bindings.audience = audience(2)
        for listener in 0..<2 as Range<UInt32> {
            let view = bindings.views.take(ViewKey(table: table, delivered: [], shape: .rows))
            _ = bindings.audience.add(Member(listener: listener, view: view, binding: 0))
        }
        return bindings
    }

    @Test func `losses are told once, and concern a listener until then`() {
        var bindings = Self.bindings()
        var losses = OpenLosses(ProjectMetrics().drops)
        losses.noteUnanswered(1)
        losses.noteLacking(0)
        losses.noteOverfull(5)
        #expect(losses.concern(0) && losses.concern(1) && !losses.concern(2))
        let told = losses.take(&bindings)
        #expect(told.unanswered == [1] && told.lacking == [0] && told.overfull == [5])
        let again = losses.take(&bindings)
        #expect(again.unanswered.isEmpty && again.lacking.isEmpty && again.overfull.isEmpty && !losses.concern(0))
    }

    @Test func `an unknown departure is missed by clients that want moves and were there`() {
        var bindings = Self.bindings()
        var losses = OpenLosses(ProjectMetrics().drops)
        losses.missDeparture(from: 7, at: 9)
        #expect(losses.take(&bindings).unanswered == [])
        losses.missDeparture(from: 8, at: 20)
        #expect(losses.take(&bindings).unanswered == [])
        losses.missDeparture(from: 7, at: 10)
        #expect(losses.take(&bindings).unanswered == [1])
        #expect(losses.take(&bindings).unanswered == [])
    }

    @Test func `rows that the log does not give are missed by all listeners of their tables`() {
        var bindings = Self.bindings()
        var losses = OpenLosses(ProjectMetrics().drops)
        var request = RecallRequest(segment: 0, position: 0, end: 0, changes: 0)
        request.rows = [7, 8].map { RecallRequest.Row(id: RowID(table: $0, hash: 1), relation: 1, key: []) }
        losses.missUnread(request, [.missing, .unread], bindings)
        #expect(losses.take(&bindings).unanswered == [])
        losses.missUnread(request, [.unread, .missing], bindings)
        #expect(losses.take(&bindings).unanswered == [0, 1])
    }
}
