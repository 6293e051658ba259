import Catalog
import Change
import Diagnostics

/// Wait of a pipeline for the one thing that its current entry needs, and what the pipeline knows of the catalog.
///
/// Events come in, and the stage of delivery and questions to the catalog go out. Another type asks the questions.
public struct DeliveryWait {
    /// Question to the catalog: the transaction that the catalog must show, or nil for a fresh catalog.
    struct CatalogRequest: Equatable {
        let ticket: UInt64
        let xid: UInt32?
        /// True if the pipeline no longer waits for the transaction, because the catalog has not shown it for too long.
        var hasGivenUp = false
    }

    private(set) var stage = DeliveryStage.reading
    private var question = CatalogQuestion()
    /// True if the catalog was read for the current entry.
    private(set) var hasCatalog = false
    /// Time at which the current entry began to wait for a catalog; nil if it does not.
    private var waitingSince: UInt64?
    /// Tables whose rows must wait for the current transaction; empty if all rows wait.
    private var heldTables: Set<UInt32> = []
    /// Tables without listeners here, while PostgreSQL does not show one of their transactions. The loop does not wait
    /// for these: nobody here is judged by a catalog that may be older than their rows.
    private var unheardTables: Set<UInt32> = []
    /// Tables among `unheardTables` that the loop passed without waiting, still to be reported.
    private var passedTables: [HeldTable] = []

    var isReading: Bool { if case .reading = stage { true } else { false } }
    /// True if a rule of the hub's own was broken, so that nobody can be served any more.
    var hasFailed: Bool { if case .failed = stage { true } else { false } }
    /// True if the pipeline waits for a catalog with policies that could be read.
    var isHeldByPolicies: Bool { if case .heldByPolicies = stage { true } else { false } }
    var isHeldByMessages: Bool { if case .heldByMessages = stage { true } else { false } }
    /// True if the current entry waits for some tables only.
    var isHeldByTables: Bool { stage.awaitsCatalog && !heldTables.isEmpty }
    /// True if the current entry waits for a catalog that shows one transaction.
    var awaitsTransaction: Bool { if case .awaitingCatalog(.some, _) = stage { true } else { false } }

    /// Stops reading until the awaited thing has come. The pipeline waits for only one thing at a time.
    mutating func begin(_ waiting: DeliveryStage) {
        stage = isReading ? waiting : impossible("an entry waits for one thing at a time")
    }

    /// Returns the stage that ends delivery, because a rule was broken. The hub sends this loop's clients away rather
    /// than tell them something that may be wrong.
    private func impossible(_ rule: StaticString) -> DeliveryStage {
        assertionFailure("\(rule)")
        Impossible.happened(rule, in: .delivery)
        return .failed
    }

    /// Ends an entry, or the progress on one that is read anew.
    mutating func finishEntry() {
        hasCatalog = false
        waitingSince = nil
        heldTables = []
    }

    // MARK: Answers

    /// Continues after messages for which the pipeline waited.
    public mutating func messagesAreDelivered() { if isHeldByMessages { stage = .reading } }

    /// Takes the log's answer. Returns the request that it answers; nil if the pipeline does not wait for it.
    mutating func recalled(_ ticket: UInt64) -> RecallRequest? {
        guard case .recalling(ticket, let request) = stage else { return nil }
        stage = .reading
        return request
    }

    /// Takes the values of generated columns. Returns the rows that they are for; nil if the pipeline does not wait.
    mutating func computed(_ ticket: UInt64) -> (batch: GeneratedColumns.Batch, recalled: DeliveryStage.Recalled?)? {
        guard case .computing(ticket, let batch, let recalled) = stage else { return nil }
        stage = .reading
        return (batch, recalled)
    }

    /// Takes converted values. Returns the request that they answer; nil if the pipeline does not wait for it.
    mutating func converted(_ ticket: UInt64) -> ConversionRequest? {
        guard case .converting(ticket, let request) = stage else { return nil }
        stage = .reading
        return request
    }

    // MARK: The catalog

    /// Waits until policies can be read. The catalog is read again by itself until then, and each result is a new
    /// snapshot.
    mutating func awaitPolicies(at now: UInt64) {
        begin(.heldByPolicies)
        waits(since: now)
    }

    /// Waits for a catalog that shows the transaction, or for a fresh one if `xid` is nil.
    mutating func awaitCatalog(seeing xid: UInt32?, at now: UInt64) -> CatalogRequest {
        begin(.awaitingCatalog(seeing: xid, unseen: 0))
        waits(since: now)
        return CatalogRequest(ticket: question.ask(), xid: xid)
    }

    private mutating func waits(since now: UInt64) {
        if waitingSince == nil { waitingSince = now }
    }

    /// Notes that the current entry can be judged by the catalog as it is.
    mutating func catalogSuffices() { waitingSince = nil }

    /// Continues reading if the catalog has answered. Without a snapshot the pipeline stays, and the loop asks again
    /// later.
    mutating func catalogRefreshed(_ ticket: UInt64, _ isKnown: Bool) {
        guard question.takeAnswer(ticket), isKnown, case .awaitingCatalog = stage else { return }
        stage = .reading
        hasCatalog = true
        waitingSince = nil
    }

    /// Returns the question to ask again; nil if none is open, or one is under way.
    ///
    /// - Parameter isCurrent: false if the catalog that was read may be out of date, which then says nothing of the
    ///   transaction.
    mutating func askAgain(isCurrent: @autoclosure () -> Bool) -> CatalogRequest? {
        guard case .awaitingCatalog(let xid, var unseen) = stage, !question.isUnderWay else { return nil }
        if isCurrent() { unseen += 1 }
        guard unseen < Limits.maximumVisibilityWaits else {
            // The server does not know a transaction of the log: the server went back in time, or waits for its
            // standby.
            stage = .awaitingCatalog(seeing: nil, unseen: 0)
            return CatalogRequest(ticket: question.ask(), xid: nil, hasGivenUp: true)
        }
        stage = .awaitingCatalog(seeing: xid, unseen: unseen)
        return CatalogRequest(ticket: question.ask(), xid: xid)
    }

    /// Notes a new snapshot, by which the policies can be read. Converted values that are under way have the types of
    /// the earlier catalog.
    mutating func hear(_ version: UInt64) {
        question.hear(version)
        switch stage {
        case .heldByPolicies, .converting: stage = .reading
        case .reading, .awaitingCatalog, .recalling, .computing, .heldByMessages, .failed: break
        }
    }

    /// True once each time clients have waited for the catalog for as long as they may be made to.
    mutating func hasTired(at now: UInt64) -> Bool {
        guard stage.awaitsCatalog, let since = waitingSince,
            now - since > Limits.maximumCatalogAbsence.wholeNanoseconds
        else {
            return false
        }
        waitingSince = now
        return true
    }

    // MARK: Marks and tables

    /// False if the catalog must be read before anything after the mark is judged. One read serves all loops, and all
    /// marks of transactions that it showed.
    mutating func mayPass(_ mark: CatalogMark, _ catalog: any CatalogSource) -> Bool {
        if hasCatalog || mark.xid != 0 && hasSeen(mark.xid, catalog) { return true }
        return mark.xid != 0 && mark.table != 0 && isUnheard([mark.table], mark.xid)
    }

    /// False if the catalog must show the transaction before its rows in the tables are judged, because policies may have
    /// changed earlier without a mark.
    mutating func mayPass(_ tables: Set<UInt32>, of xid: UInt32, _ catalog: any CatalogSource) -> Bool {
        hasSeen(xid, catalog) || isUnheard(tables, xid)
    }

    /// True if the loop has heard of the newest snapshot, and that snapshot shows the transaction. The order of the
    /// checks matters: news of a snapshot may still be on its way to the loop.
    func hasSeen(_ xid: UInt32, _ catalog: any CatalogSource) -> Bool {
        catalog.isCurrent && catalog.hasSeen(xid) && catalog.snapshot?.version == question.heardOf
    }

    /// Notes the tables without listeners here, while PostgreSQL does not show one of their transactions. The loop does
    /// not wait for these.
    public mutating func passOver(unheard tables: Set<UInt32>) { unheardTables = tables }

    /// Continues an entry that waited for tables to which nobody listens here any more.
    public mutating func readOnUnheard() {
        guard isHeldByTables, heldTables.isSubset(of: unheardTables) else { return }
        stage = .reading
        heldTables = []
        waitingSince = nil
    }

    /// True if the tables concern nobody here. Otherwise notes the tables, whose rows then wait.
    private mutating func isUnheard(_ tables: Set<UInt32>, _ xid: UInt32) -> Bool {
        guard tables.isSubset(of: unheardTables) else {
            heldTables = tables
            return false
        }
        passedTables += tables.sorted().map { HeldTable(table: $0, xid: xid) }
        return true
    }

    /// Returns the tables that were passed without waiting since the last call.
    mutating func takePassed() -> [HeldTable] {
        defer { passedTables = [] }
        return passedTables
    }

    /// Returns the tables whose rows wait longer than usual for their transaction.
    func tablesHeldLong(at now: UInt64) -> [HeldTable] {
        guard case .awaitingCatalog(let xid?, _) = stage, let since = waitingSince,
            now - since > Limits.heldTablePatience.wholeNanoseconds
        else { return [] }
        return heldTables.sorted().map { HeldTable(table: $0, xid: xid) }
    }
}
