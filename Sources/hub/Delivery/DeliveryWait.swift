import Catalog
import Change
import Diagnostics

/// Wait of a pipeline for one thing that its current entry needs, and the pipeline's knowledge of the catalog.
///
/// This type receives events and returns the stage of delivery and questions to the catalog. `QuestionSender` sends the
/// questions.
public struct DeliveryWait {
    /// Question to the catalog. `xid` is the transaction that the catalog must show, or nil for a newly read catalog.
    struct CatalogRequest: Equatable {
        let ticket: UInt64
        let xid: UInt32?
        /// True if the pipeline stops waiting for the transaction, because the catalog did not show it for too long.
        var hasGivenUp = false
    }

    private(set) var stage = DeliveryStage.reading
    private var question = CatalogQuestion()
    /// True if the catalog was read since the current entry began.
    private(set) var hasCatalog = false
    /// Monotonic time in nanoseconds at which the current entry began to wait for a catalog; nil if it does not wait.
    private var waitingSince: UInt64?
    /// Tables whose rows wait until the catalog shows the current transaction; empty if all rows wait.
    private var heldTables: Set<UInt32> = []
    /// Tables without listeners on this loop whose newest transaction PostgreSQL does not show yet. The loop does not
    /// wait for these: none of its channels could receive their rows by an outdated policy.
    private var tablesWithoutListeners: Set<UInt32> = []
    /// Tables in `tablesWithoutListeners` that the loop passed without waiting, until the next report.
    private var passedTables: [HeldTable] = []

    var isReading: Bool { if case .reading = stage { true } else { false } }
    /// True if a rule of the program was broken, so that the pipeline delivers nothing more.
    var hasFailed: Bool { if case .failed = stage { true } else { false } }
    /// True if the pipeline waits for a catalog in which all policies could be read.
    var isHeldByPolicies: Bool { if case .heldByPolicies = stage { true } else { false } }
    var isHeldByMessages: Bool { if case .heldByMessages = stage { true } else { false } }
    /// True if only the rows of some tables make the current entry wait.
    var isHeldByTables: Bool { stage.awaitsCatalog && !heldTables.isEmpty }
    /// True if the current entry waits for a catalog that shows one transaction.
    var awaitsTransaction: Bool { if case .awaitingCatalog(.some, _) = stage { true } else { false } }

    /// Stops reading and begins the given wait. The pipeline waits for only one thing at a time.
    mutating func begin(_ waiting: DeliveryStage) {
        stage = isReading ? waiting : impossible("an entry waits for one thing at a time")
    }

    /// Returns the stage that ends delivery, because a rule of the program was broken. The hub disconnects this loop's
    /// clients rather than send them something that may be wrong.
    private func impossible(_ rule: StaticString) -> DeliveryStage {
        assertionFailure("\(rule)")
        Impossible.happened(rule, in: .delivery)
        return .failed
    }

    /// Resets the progress on the current log entry, because the entry is done or will be read again.
    mutating func finishEntry() {
        hasCatalog = false
        waitingSince = nil
        heldTables = []
    }

    // MARK: Answers

    /// Resumes reading after the entry's messages were delivered.
    public mutating func messagesAreDelivered() { if isHeldByMessages { stage = .reading } }

    /// Accepts the log's answer about rows. Returns the request that it answers; nil if the pipeline does not wait for
    /// it.
    mutating func recalled(_ ticket: UInt64) -> RecallRequest? {
        guard case .recalling(ticket, let request) = stage else { return nil }
        stage = .reading
        return request
    }

    /// Accepts values of generated columns. Returns the rows that need them; nil if the pipeline does not wait for
    /// them.
    mutating func computed(_ ticket: UInt64) -> (batch: GeneratedColumns.Batch, recalled: DeliveryStage.Recalled?)? {
        guard case .computing(ticket, let batch, let recalled) = stage else { return nil }
        stage = .reading
        return (batch, recalled)
    }

    /// Accepts converted values. Returns the request that they answer; nil if the pipeline does not wait for it.
    mutating func converted(_ ticket: UInt64) -> ConversionRequest? {
        guard case .converting(ticket, let request) = stage else { return nil }
        stage = .reading
        return request
    }

    // MARK: The catalog

    /// Begins to wait until all policies can be read. The catalog service retries by itself, and each attempt makes a
    /// new snapshot.
    mutating func awaitPolicies(at now: UInt64) {
        begin(.heldByPolicies)
        waits(since: now)
    }

    /// Begins to wait for a catalog that shows the transaction; if `xid` is nil, for a newly read catalog. Returns the
    /// question to send.
    mutating func awaitCatalog(seeing xid: UInt32?, at now: UInt64) -> CatalogRequest {
        begin(.awaitingCatalog(seeing: xid, unseen: 0))
        waits(since: now)
        return CatalogRequest(ticket: question.ask(), xid: xid)
    }

    private mutating func waits(since now: UInt64) {
        if waitingSince == nil { waitingSince = now }
    }

    /// Records that the current log entry needs no newer catalog.
    mutating func catalogSuffices() { waitingSince = nil }

    /// Resumes reading if the catalog was read (`isKnown`). Otherwise the pipeline keeps waiting, and the loop asks
    /// again later.
    mutating func catalogRefreshed(_ ticket: UInt64, _ isKnown: Bool) {
        guard question.takeAnswer(ticket), isKnown, case .awaitingCatalog = stage else { return }
        stage = .reading
        hasCatalog = true
        waitingSince = nil
    }

    /// Returns the question to send to the catalog again; nil if the pipeline does not wait for the catalog, or a
    /// question is already under way.
    ///
    /// - Parameter isCurrent: true if the catalog that was read is up to date. An outdated one does not count as an
    ///   attempt to see the transaction.
    mutating func askAgain(isCurrent: @autoclosure () -> Bool) -> CatalogRequest? {
        guard case .awaitingCatalog(let xid, var unseen) = stage, !question.isUnderWay else { return nil }
        if isCurrent() { unseen += 1 }
        guard unseen < Limits.maximumVisibilityWaits else {
            // PostgreSQL does not know a transaction of the log: it was restored to an earlier time, or waits for its
            // standby.
            stage = .awaitingCatalog(seeing: nil, unseen: 0)
            return CatalogRequest(ticket: question.ask(), xid: nil, hasGivenUp: true)
        }
        stage = .awaitingCatalog(seeing: xid, unseen: unseen)
        return CatalogRequest(ticket: question.ask(), xid: xid)
    }

    /// Records the version of a new snapshot, in which the policies could be read. Drops conversions under way, because
    /// their target types are those of the earlier catalog.
    mutating func hear(_ version: UInt64) {
        question.hear(version)
        switch stage {
        case .heldByPolicies, .converting: stage = .reading
        case .reading, .awaitingCatalog, .recalling, .computing, .heldByMessages, .failed: break
        }
    }

    /// Returns true once each time that clients have waited for the catalog for the maximum time.
    mutating func hasWaitedTooLong(at now: UInt64) -> Bool {
        guard stage.awaitsCatalog, let since = waitingSince,
            now - since > Limits.maximumCatalogAbsence.wholeNanoseconds
        else {
            return false
        }
        waitingSince = now
        return true
    }

    // MARK: Marks and tables

    /// True if the pipeline may deliver the changes after a mark that policies or grants may have changed. False if the
    /// catalog must be read first. One read serves all loops, and all marks of transactions that it shows.
    mutating func mayPass(_ mark: CatalogMark, _ catalog: any CatalogSource) -> Bool {
        if hasCatalog || mark.xid != 0 && hasSeen(mark.xid, catalog) { return true }
        return mark.xid != 0 && mark.table != 0 && isUnheard([mark.table], mark.xid)
    }

    /// True if the pipeline may evaluate policies on the transaction's rows in the tables. False if the catalog must
    /// show the transaction first, because these policies may have changed without a mark in the log.
    mutating func mayPass(_ tables: Set<UInt32>, of xid: UInt32, _ catalog: any CatalogSource) -> Bool {
        hasSeen(xid, catalog) || isUnheard(tables, xid)
    }

    /// True if the loop has received the newest snapshot, and that snapshot shows the transaction. The checks must be
    /// in this order, because a newer snapshot may not have reached the loop yet.
    func hasSeen(_ xid: UInt32, _ catalog: any CatalogSource) -> Bool {
        catalog.isCurrent && catalog.hasSeen(xid) && catalog.snapshot?.version == question.newestVersion
    }

    /// Sets the tables that have no listeners on this loop and whose transactions PostgreSQL does not show yet. The
    /// loop does not wait for these.
    public mutating func passOver(unheard tables: Set<UInt32>) { tablesWithoutListeners = tables }

    /// Resumes reading at an entry that waited only for tables that have no listeners on this loop any more.
    public mutating func resumeIfUnlistened() {
        guard isHeldByTables, heldTables.isSubset(of: tablesWithoutListeners) else { return }
        stage = .reading
        heldTables = []
        waitingSince = nil
    }

    /// Returns true if none of the tables has listeners on this loop. Otherwise makes the tables' rows wait.
    private mutating func isUnheard(_ tables: Set<UInt32>, _ xid: UInt32) -> Bool {
        guard tables.isSubset(of: tablesWithoutListeners) else {
            heldTables = tables
            return false
        }
        passedTables += tables.sorted().map { HeldTable(table: $0, xid: xid) }
        return true
    }

    /// Removes and returns the tables that the loop passed without waiting.
    mutating func takePassed() -> [HeldTable] {
        defer { passedTables = [] }
        return passedTables
    }

    /// Returns the tables whose rows have waited longer than usual for their transaction.
    func tablesHeldLong(at now: UInt64) -> [HeldTable] {
        guard case .awaitingCatalog(let xid?, _) = stage, let since = waitingSince,
            now - since > Limits.heldTablePatience.wholeNanoseconds
        else { return [] }
        return heldTables.sorted().map { HeldTable(table: $0, xid: xid) }
    }
}
