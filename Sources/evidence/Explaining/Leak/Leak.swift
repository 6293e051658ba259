import Catalog
import Change
import EventLog
import History
import Judging
import Policy
import Postgres

/// Search for deliveries in a window that differ between the hub and a given set of policies: those that the policies
/// would not have made, and those that only they would have made.
///
/// Takes a window of the log, and SQL that changes a database's policies to the given ones. Evaluates each change for
/// each channel of the ledger twice, with the channel's own bindings and claims: by the catalog at that time, as the
/// log has it, and by the given policies. Recorded deliveries take precedence over derived ones.
public struct Leak {
    public struct Settings: Sendable {
        /// Database in which the SQL is applied and rolled back.
        public var target: ConnectionTarget
        public var publication: String
        public var deletesAreStrict: Bool
        /// Maximum number of rows to ask PostgreSQL about, for each catalog.
        public var asksAtMost = 100_000
        /// Maximum number of differing deliveries to return.
        public var items = 1000
        /// Number of examples of each reason, for each user and table.
        public var examples = 3
        /// True if present data replaces what the log does not show about the past: memberships that it cannot compute
        /// back, and verdicts that only PostgreSQL can give. False leaves such verdicts unknown.
        public var assumesUnchanged = false
        /// True if the database may have changed after the end of the log.
        public var logMayEndEarly = false

        public init(target: ConnectionTarget, publication: String, deletesAreStrict: Bool) {
            self.target = target
            self.publication = publication
            self.deletesAreStrict = deletesAreStrict
        }
    }

    /// Maximum number of pairs of a channel and a change whose verdicts fit into memory.
    private static let mostVerdicts = 4_000_000_000
    private static let mostCatalogs = 200

    private let log: HistoryLog
    private let settings: Settings

    public init(_ log: HistoryLog, _ settings: Settings) {
        self.log = log
        self.settings = settings
    }

    /// Compares the deliveries of the window, of all users or of one.
    ///
    /// - Parameter sql: changes to the database's catalog; nil uses the catalog without changes.
    /// - Parameter progress: gets the name of the current pass and the offset reached.
    public func answer(
        _ sql: String?, of user: String? = nil, in window: HistoryWindow, progress: (String, UInt64) -> Void
    ) throws -> LeakReport {
        let offsets = try log.offsets(of: window)
        let window = window.part(offsets)
        let book = try AttendanceBook(log)
        let tables = Array(Set(try log.relations().map(\.table))).sorted { $0.description < $1.description }
        let clients = LeakClients(book, of: user, in: offsets, tables)
        let timeline = try CatalogTimeline(of: log)
        guard timeline.records.count <= Self.mostCatalogs else {
            throw WhatIf.Failure.tooLarge(
                pairs: timeline.records.count * offsets.count, most: Self.mostCatalogs * offsets.count)
        }
        let pairs = offsets.count * max(1, clients.holders.count) * 3 * (timeline.records.count + 1)
        guard pairs <= Self.mostVerdicts else {
            throw WhatIf.Failure.tooLarge(
                pairs: offsets.count * clients.holders.count,
                most: Self.mostVerdicts / 3 / (timeline.records.count + 1))
        }
        var report = LeakReport(offsets)
        report.strangers = book.strangers
        report.ledgerFrom = book.keptFrom
        let changes = WindowChanges(offsets, keepsTimes: true)
        let proposal = try Proposal(settings.target, publication: settings.publication)
        let pass = LeakPasses(log, settings, clients, changes, proposal, tables)
        let given = try apply(sql, proposal, clients)
        let then = try pass.run(given, window, &report) { progress("by the given policies", $0) }
        if sql != nil { try proposal.undo() }
        var catalogs: [Int: RuledChanges] = [:]
        let needed = try pass.offsets(of: timeline, book, in: offsets)
        for (number, part) in needed.sorted(by: { $0.key < $1.key }) {
            let record = timeline.records[number]
            guard let view = try? CatalogTrial(record).view(for: record.roles) else { continue }
            catalogs[number] = try pass.run(view, window.part(part), &report) {
                progress("by the policies of then", $0)
            }
        }
        try proposal.end()
        for stretch in timeline.stretches(in: offsets) {
            let view = stretch.record.flatMap { catalogs[$0]?.ruling.view }
            let roles = Set(clients.holders.map(\.role)).sorted()
            report.parts.append(
                LeakReport.Part(
                    offsets: stretch.offsets, differences: view.map { CatalogDifferences($0, given, roles) }))
        }
        var findings = LeakFindings(log, book, timeline, catalogs, then, changes, settings)
        try findings.find(clients, offsets, &report)
        return report
    }

    private func apply(_ sql: String?, _ proposal: Proposal, _ clients: LeakClients) throws -> CatalogView {
        if let sql {
            do throws(PostgresError) {
                try proposal.apply(sql)
            } catch {
                if error.isConnectionLost { throw error }
                throw WhatIf.Failure.refused(error)
            }
        }
        return try proposal.view(for: Set(clients.holders.map(\.role)).sorted())
    }
}

/// Passes over the window of a `Leak` search, one for each catalog. Each finds the changes that its catalog's policies
/// show.
struct LeakPasses {
    private let log: HistoryLog
    private let settings: Leak.Settings
    private let clients: LeakClients
    private let changes: WindowChanges
    private let proposal: Proposal
    private let bindings: ProposedBindings

    init(
        _ log: HistoryLog, _ settings: Leak.Settings, _ clients: LeakClients, _ changes: WindowChanges,
        _ proposal: Proposal, _ tables: [TableName]
    ) {
        (self.log, self.settings, self.clients) = (log, settings, clients)
        (self.changes, self.proposal) = (changes, proposal)
        let concerned = Set(clients.bindings.flatMap(\.keys))
        bindings = ProposedBindings(
            then: Dictionary(uniqueKeysWithValues: concerned.map { ($0, []) }), now: clients.bindings)
    }

    func run(
        _ view: CatalogView, _ window: HistoryWindow, _ report: inout LeakReport, progress: (UInt64) -> Void
    ) throws -> RuledChanges {
        let asked = BoundBindings(bindings, .now, view, proposal)
        var ruling = try Ruling(view, clients.holders, proposal, asking: asked) { _, _ in true }
        ruling.markUnknown(claims: clients.unknownClaims, filters: clients.maskedFilters)
        let holders = clients.holders.count
        if changes.offsets.count * holders * (2 + ruling.partCount) > 400_000_000 { ruling.dropParts() }
        let asksNow = settings.assumesUnchanged
        let told = ToldChanges(changes, holders: holders, parts: ruling.partCount, keepsUnknown: true)
        var pass = RulingPass(
            ruling, clients.holders, asksNow && ruling.mayAsk ? TrialJudge(proposal.session) : nil, into: told,
            deletesAreStrict: settings.deletesAreStrict, asksAtMost: settings.asksAtMost, lost: log.lost,
            keepsUnknown: true, asksNow: asksNow, logMayEndEarly: settings.logMayEndEarly)
        try pass.run(log, window, progress: progress)
        report.asked += told.asked
        if asksNow, !pass.isExact || settings.logMayEndEarly, !ruling.sets.isEmpty { report.membershipsAreOfNow = true }
        if let lost = log.lost { report.lost.formUnion(ruling.columns(maskedBy: lost)) }
        return RuledChanges(ruling: ruling, told: told)
    }

    /// Returns the offsets that must be evaluated by each recorded catalog, by the catalog's index. A client that
    /// caught up may have been served by a later catalog than the change's own.
    func offsets(
        of timeline: CatalogTimeline, _ book: AttendanceBook, in offsets: Range<UInt64>
    ) throws -> [Int: Range<UInt64>] {
        var needed: [Int: Range<UInt64>] = [:]
        func need(_ record: Int?, _ part: Range<UInt64>) {
            guard let record, !part.isEmpty else { return }
            let known = needed[record] ?? part
            needed[record] =
                min(known.lowerBound, part.lowerBound)..<max(known.upperBound, part.upperBound)
        }
        for stretch in timeline.stretches(in: offsets) { need(stretch.record, stretch.offsets) }
        for client in clients.clients {
            let attendance = client.attendance
            guard let end = book.catchUpEnd(of: attendance, to: attendance.since) else { continue }
            let part = (attendance.since..<max(attendance.since, attendance.joined.place, 1)).clamped(to: offsets)
            let last = attendance.caughtUpBy ?? end
            let judged = (attendance.since..<max(attendance.since, last)).clamped(to: offsets)
            let whole = part.lowerBound..<max(part.upperBound, judged.upperBound)
            for stretch in timeline.stretches(in: attendance.since..<max(attendance.since + 1, end)) {
                need(stretch.record, whole)
            }
        }
        return needed
    }
}
