import Catalog
import Change
import Diagnostics
import EventLog
import History
import Judging
import Policy
import Postgres
import Protocol

/// Comparison, before a migration, that shows which rows each holder would gain or lose. It reads the changes that the
/// log still has and evaluates each as the hub would have done.
///
/// Takes a window of the log, holders, and SQL. The SQL runs in a transaction that is rolled back. If the hub can
/// evaluate everything without PostgreSQL, the rollback happens before the log is read, so that locks are held only
/// briefly.
public struct WhatIf {
    public struct Settings: Sendable {
        /// Database in which the SQL is applied and rolled back.
        public var target: ConnectionTarget
        public var publication: String
        public var deletesAreStrict: Bool
        /// Maximum number of rows to ask PostgreSQL about, for each of the two catalogs: the present one and the
        /// proposed one.
        public var asksAtMost = 100_000
        /// Number of examples for each group of gained or lost rows, for each holder and table.
        public var examples = 3
        /// True if the database may have changed after the end of the log. Membership changes since then cannot be
        /// undone.
        public var logMayEndEarly = false

        public init(target: ConnectionTarget, publication: String, deletesAreStrict: Bool) {
            self.target = target
            self.publication = publication
            self.deletesAreStrict = deletesAreStrict
        }
    }

    public enum Failure: Error {
        /// PostgreSQL rejects the SQL.
        case refused(PostgresError)
        /// The hub would refuse a proposed subscription, with this reason.
        case badBinding(table: String, reason: String)
        /// A proposed subscription is for a table that is not in the publication.
        case unpublished(TableName)
        /// Excess of pairs of a holder and a change; `most` is the limit.
        case tooLarge(pairs: Int, most: Int)
    }

    private static let mostPairs = 4_000_000_000

    private let log: HistoryLog
    private let settings: Settings

    public init(_ log: HistoryLog, _ settings: Settings) {
        self.log = log
        self.settings = settings
    }

    /// Compares the present catalog with the proposal. `progress` gets the name of the current pass and the offset
    /// reached.
    ///
    /// - Parameter bindings: subscriptions to take into account; nil compares only what holders may see.
    public func answer(
        _ sql: String, for holders: [ExplainedHolder], asking bindings: ProposedBindings? = nil,
        in window: HistoryWindow,
        progress: (String, UInt64) -> Void
    ) throws -> WhatIfReport {
        let offsets = try log.offsets(of: window)
        // Each pair has one bit for the changes that the holder receives and, with bindings, one for those that
        // policies show. Both exist for the present and for the proposal.
        guard offsets.count * holders.count * (bindings == nil ? 2 : 4) <= Self.mostPairs else {
            throw Failure.tooLarge(pairs: offsets.count * holders.count, most: Self.mostPairs / 2)
        }
        let roles = Set(holders.map(\.role)).sorted()
        let proposal = try Proposal(settings.target, publication: settings.publication)
        let before = try proposal.view(for: roles)
        do throws(PostgresError) {
            try proposal.apply(sql)
        } catch {
            if error.isConnectionLost { throw error }
            throw Failure.refused(error)
        }
        let after = try proposal.view(for: roles)
        let differences = CatalogDifferences(before, after, roles)
        var report = WhatIfReport(holders, differences, offsets)
        let changes = WindowChanges(offsets)
        for table in (bindings?.then.keys).map(Array.init) ?? []
        where after.snapshot.table(table.schema, table.name) == nil {
            throw Failure.unpublished(table)
        }
        report.unpublished = try unpublished(before, after, proposal)
        // The proposed side is computed first, while the SQL is applied.
        let asked = { (side: BoundBindings.Side, view: CatalogView) in
            bindings.map { BoundBindings($0, side, view, proposal) }
        }
        let proposed = try ruling(after, holders, proposal, differences, asking: asked(.then, after), over: offsets)
        if !proposed.mayAsk { try proposal.undo() }
        let then = ToldChanges(changes, holders: holders.count, parts: proposed.partCount)
        try judge(proposed, holders, proposal, window, into: then, &report) { progress("with the proposal", $0) }
        if proposed.mayAsk { try proposal.undo() }
        let present = try ruling(before, holders, proposal, differences, asking: asked(.now, before), over: offsets)
        if !present.mayAsk { try proposal.end() }
        let now = ToldChanges(changes, holders: holders.count, parts: present.partCount)
        try judge(present, holders, proposal, window, into: now, &report) { progress("without the proposal", $0) }
        if present.mayAsk { try proposal.end() }
        report.compare(
            RuledChanges(ruling: present, told: now), RuledChanges(ruling: proposed, told: then), changes,
            examples: settings.examples)
        return report
    }

    /// Returns the policies of the catalog for all holders. Does not keep single policies apart if memory would not
    /// suffice.
    private func ruling(
        _ view: CatalogView, _ holders: [ExplainedHolder], _ proposal: Proposal, _ differences: CatalogDifferences,
        asking bindings: BoundBindings?, over offsets: Range<UInt64>
    ) throws -> Ruling {
        var ruling = try Ruling(view, holders, proposal, asking: bindings, concerns: differences.concern)
        if offsets.count * holders.count * (1 + ruling.partCount) > Self.mostPairs / 2 { ruling.dropParts() }
        return ruling
    }

    private func judge(
        _ ruling: Ruling, _ holders: [ExplainedHolder], _ proposal: Proposal, _ window: HistoryWindow,
        into told: ToldChanges, _ report: inout WhatIfReport, progress: (UInt64) -> Void
    ) throws {
        var pass = RulingPass(
            ruling, holders, ruling.mayAsk ? TrialJudge(proposal.session) : nil, into: told,
            deletesAreStrict: settings.deletesAreStrict, asksAtMost: settings.asksAtMost,
            lost: log.lost)
        try pass.run(log, window, progress: progress)
        report.asked += told.asked
        report.unasked += told.unasked
        report.unfiltered += told.unfiltered
        if !pass.isExact { report.membershipsAreOfNow = true }
        if settings.logMayEndEarly, !ruling.sets.isEmpty { report.membershipsMayBeLater = true }
        if let lost = log.lost { report.lost.formUnion(ruling.columns(maskedBy: lost)) }
    }

    /// Returns the log's tables that no publication of this database has, at present or as proposed. The log may be of
    /// another database.
    private func unpublished(
        _ before: CatalogView, _ after: CatalogView, _ proposal: Proposal
    ) throws -> [TableName] {
        var names: [UInt32: TableName] = [:]
        for known in try log.relations() { names[known.relation.oid] = known.table }
        let missing = Set(names.values).filter { name in
            [before, after].allSatisfy { $0.snapshot.table(name.schema, name.name) == nil }
        }
        guard !missing.isEmpty else { return [] }
        return try missing.subtracting(proposal.publishedTables()).sorted { $0.description < $1.description }
    }
}

extension HistoryLog {
    /// Returns the range of offsets of the window that the log still has.
    func offsets(of window: HistoryWindow) throws -> Range<UInt64> {
        let segments = try segments()
        let first = max(window.firstOffset, segments.first?.firstOffset ?? 0)
        let end = min(window.endOffset, segments.last?.endOffset ?? 0)
        return first..<max(first, end)
    }
}

/// Differences between two catalogs that affect which changes the given roles receive.
public struct CatalogDifferences: Sendable {
    public struct Table: Sendable {
        public var name: TableName
        public var role: String
        /// Descriptions in words, one for each difference.
        public var changes: [String]
    }

    public private(set) var tables: [Table] = []
    private var concerned: Set<String> = []

    init(_ before: CatalogView, _ after: CatalogView, _ roles: [String]) {
        let names = Set(
            (before.snapshot.tables + after.snapshot.tables).map { TableName(schema: $0.schema, name: $0.name) })
        for name in names.sorted(by: { $0.description < $1.description }) {
            for role in roles {
                let one = before.snapshot.table(name.schema, name.name).map { Side(before, $0, role) }
                let other = after.snapshot.table(name.schema, name.name).map { Side(after, $0, role) }
                let changes = Self.words(one, other)
                if !changes.isEmpty { tables.append(Table(name: name, role: role, changes: changes)) }
                if !changes.isEmpty || Self.mayDiffer(one, other, before, after) {
                    concerned.insert(Self.key(role, name.schema, name.name))
                }
            }
        }
    }

    func concern(_ role: String, _ table: CatalogTable) -> Bool {
        concerned.contains(Self.key(role, table.schema, table.name))
    }

    private static func key(_ role: String, _ schema: String, _ table: String) -> String {
        "\(role)\u{0}\(schema)\u{0}\(table)"
    }

    private struct Side {
        var isReadable: Bool
        var columns: [String]
        var policy: PolicyBinding?
        var operations: RowOperations

        init(_ view: CatalogView, _ table: CatalogTable, _ role: String) {
            isReadable = view.isReadable(table, by: role)
            columns = view.access(of: role, to: table)?.selectable.map { table.columns[$0].name } ?? []
            policy = view.policy(of: role, on: table)
            operations = table.operations
        }
    }

    /// True if the sides may differ although all policy texts are equal, because a function that they call may have
    /// changed.
    private static func mayDiffer(_ one: Side?, _ other: Side?, _ before: CatalogView, _ after: CatalogView) -> Bool {
        guard let one, let other else { return (one == nil) != (other == nil) }
        let isUndecided = [one, other].contains { side in
            side.policy?.rowPolicy.term.contains { $0 == .undecided } ?? false
        }
        return isUndecided || one.policy?.rowPolicy != other.policy?.rowPolicy
            || after.snapshot.policies.surroundings != before.snapshot.policies.surroundings && one.policy != nil
    }

    private static func words(_ one: Side?, _ other: Side?) -> [String] {
        switch (one, other) {
        case (nil, nil): return []
        case (nil, _): return ["is published"]
        case (_, nil): return ["is not published any more"]
        case (let one?, let other?): return words(one, other)
        }
    }

    private static func words(_ one: Side, _ other: Side) -> [String] {
        var words: [String] = []
        if one.isReadable != other.isReadable {
            words.append(other.isReadable ? "may be read" : "may not be read any more")
        }
        let (more, less) = (
            names(other.operations.subtracting(one.operations)), names(one.operations.subtracting(other.operations))
        )
        if !more.isEmpty { words.append("also of \(more)") }
        if !less.isEmpty { words.append("no longer of \(less)") }
        let added = other.columns.filter { !one.columns.contains($0) }
        let removed = one.columns.filter { !other.columns.contains($0) }
        if !added.isEmpty { words.append("also columns \(added.joined(separator: ", "))") }
        if !removed.isEmpty { words.append("without columns \(removed.joined(separator: ", "))") }
        if (one.policy == nil) != (other.policy == nil) {
            words.append(other.policy == nil ? "row security no longer applies" : "row security applies")
        }
        let (was, becomes) = (parts(one), parts(other))
        for (name, text) in becomes.sorted(by: { $0.key < $1.key }) {
            guard let before = was[name] else {
                words.append("policy \"\(name)\" is new: \(text)")
                continue
            }
            if before != text { words.append("policy \"\(name)\": \(before) → \(text)") }
        }
        for name in was.keys.sorted() where becomes[name] == nil { words.append("policy \"\(name)\" is dropped") }
        return words
    }

    private static func names(_ operations: RowOperations) -> String {
        [(RowOperations.insert, "insert"), (.update, "update"), (.delete, "delete")]
            .filter { operations.contains($0.0) }.map(\.1).joined(separator: ", ")
    }

    private static func parts(_ side: Side) -> [String: String] {
        var parts: [String: String] = [:]
        for part in side.policy?.parts ?? [] {
            let text = part.text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
            parts[part.name] = part.isPermissive ? text : "restrictive: " + text
        }
        return parts
    }
}

/// Result of a comparison between the present catalog and the proposal.
public struct WhatIfReport: Sendable {
    public struct Line: Sendable {
        public var holder: Int
        public var table: TableName
        public var before = 0
        public var after = 0
        public var gains = 0
        public var losses = 0
        /// The same gains and losses, grouped by reason.
        public var shifts: [Shift] = []
    }

    /// Rows that a holder gains, or loses, for the same reason.
    public struct Shift: Sendable {
        public var isGain: Bool
        /// Reason why one side shows the rows: the proposal for gains, the present catalog for losses.
        public var shownBy: RulingReason
        /// Reason why the other side hides the rows.
        public var keptBy: RulingReason
        public var rows = 0
        /// Offsets of the first few changes in this group.
        public var examples: [UInt64] = []
    }

    public let holders: [ExplainedHolder]
    public let differences: CatalogDifferences
    public let offsets: Range<UInt64>
    /// Lines of the report: one for each holder and table with changes that the holder would receive, at present or as
    /// proposed.
    public private(set) var lines: [Line] = []
    public internal(set) var asked = 0
    /// Number of rows about which PostgreSQL should have been asked but was not. They count as not received.
    public internal(set) var unasked = 0
    /// Number of rows for which only PostgreSQL could decide a filter. They count as not received.
    public internal(set) var unfiltered = 0
    /// True if present memberships were used because some could not be computed back to the window.
    public internal(set) var membershipsAreOfNow = false
    /// True if memberships may include changes made after the end of the log.
    public internal(set) var membershipsMayBeLater = false
    /// Names of the log's tables that are in none of the database's publications. Their changes count as not received.
    public internal(set) var unpublished: [TableName] = []
    /// Names of the columns that policies read, and whose values a bundle does not have.
    public internal(set) var lost: Set<String> = []

    init(_ holders: [ExplainedHolder], _ differences: CatalogDifferences, _ offsets: Range<UInt64>) {
        self.holders = holders
        self.differences = differences
        self.offsets = offsets
    }

    public var gains: Int { lines.reduce(0) { $0 + $1.gains } }
    public var losses: Int { lines.reduce(0) { $0 + $1.losses } }

    mutating func compare(
        _ before: RuledChanges, _ after: RuledChanges, _ changes: WindowChanges, examples: Int
    ) {
        for holder in holders.indices {
            var found: [AccessDiff?] = Array(repeating: nil, count: changes.tables.count)
            ToldChanges.visit(before.told, after.told, holder: holder) { offset, isTold, wouldBeTold in
                guard let (table, operation) = changes.fact(at: offset) else { return }
                let book = found[table] ?? AccessDiff(holder, changes.tables[table], before, after, examples: examples)
                found[table] = book
                book.note(offset, operation, isTold: isTold, wouldBeTold: wouldBeTold)
            }
            lines += found.compactMap { $0?.whole }.sorted { $0.table.description < $1.table.description }
        }
    }
}
