import Policy
import Protocol

/// Warnings that a subscribed table sends less than a user may expect. Clients receive them when they join; operators
/// see them in `tidewire doctor`.
extension TableBinding {
    /// Means by which the hub can supply data that the replication stream lacks.
    public struct Means: Sendable {
        public var publication: String
        /// True if the hub has a login with which PostgreSQL computes generated columns.
        public var mayCompute: Bool
        /// True if the hub has no login for policies that only PostgreSQL can decide.
        public var nobodyDecides: Bool
        /// True if the hub sends a delete only to clients that could see the deleted row.
        public var deletesAreStrict: Bool

        public init(publication: String, mayCompute: Bool, nobodyDecides: Bool, deletesAreStrict: Bool) {
            self.publication = publication
            self.mayCompute = mayCompute
            self.nobodyDecides = nobodyDecides
            self.deletesAreStrict = deletesAreStrict
        }
    }

    /// Returns the warnings for a client of this role.
    ///
    /// - Parameter asksPostgres: true if PostgreSQL must decide the policies for this client.
    public func warnings(for role: String, by means: Means, asksPostgres: Bool) -> [ClientText] {
        var warnings = publicationWarnings(means)
        if !isKeptSecret, let refused = BindingMessages.rowsAreRefused(table, access, role) { warnings.append(refused) }
        if let warning = warningAboutFilteredDeletes { warnings.append(warning) }
        if let warning = warningAboutOldRows { warnings.append(warning) }
        guard let policy else { return warnings }
        if isKeptSecret { return warnings + [BindingMessages.nothingIsReadable(table)] }
        if let warning = policy.warning { warnings.append(ClientText(.policyNotJudged, warning)) }
        if asksPostgres, means.nobodyDecides { warnings.append(BindingMessages.nobodyDecides(table)) }
        // A policy that shows no rows at all has already produced a warning.
        guard policy.rowPolicy.term != .never else { return warnings }
        let judged = table.sources(of: Set(policy.row.columns.filter(\.isNeeded).map(\.slot)))
        if operations.contains(.delete), !table.identifies(judged), means.deletesAreStrict {
            warnings.append(
                table.isRecallable
                    ? BindingMessages.deletesAreRecalled(table) : BindingMessages.deletesAreHidden(table))
        }
        return warnings
    }

    /// Returns warnings about operations, rows and columns that the publication omits and that the hub cannot supply.
    private func publicationWarnings(_ means: Means) -> [ClientText] {
        if isKeptSecret { return [] }
        var warnings: [ClientText] = []
        if !unpublished.isEmpty {
            warnings.append(
                BindingMessages.areNotPublished(unpublished, of: table, table.operations, means.publication))
        }
        if table.hasRowFilter { warnings.append(BindingMessages.rowsAreLeftOut(table, means.publication)) }
        let computed = table.computed
        let told = computed.filter(delivered.contains)
        if !told.isEmpty || computed.contains(where: isJudged(by:)), !means.mayCompute {
            warnings.append(BindingMessages.areNotComputed(told.map { table.columns[$0] }, of: table))
        }
        return warnings
    }

    /// Warning that deletes lack columns of the filter; nil if deletes contain all of the filter's columns.
    private var warningAboutFilteredDeletes: ClientText? {
        guard operations.contains(.delete), !isKeptSecret, let filter = predicate,
            !table.identifies(Set(filter.columns))
        else { return nil }
        return table.isRecallable
            ? BindingMessages.filteredDeletesAreRecalled(table) : BindingMessages.filteredDeletesAreHidden(table)
    }

    /// Warning that updates lack old values that the filter reads; nil if they contain them.
    private var warningAboutOldRows: ClientText? {
        guard operations.contains(.update), !isKeptSecret, let filter = predicate, filter.readsOldRow else {
            return nil
        }
        let read = Self.oldSlots(Set(filter.oldColumns), policy, of: table)
        return table.identifies(read) ? nil : BindingMessages.oldRowsAreRecalled(table)
    }

    /// Returns the slots whose values before an update the hub needs for a filter: those that the filter reads, and
    /// those by which the policy decides who may know the old row. Empty if the filter reads no old row.
    static func oldSlots(_ ofFilter: Set<Int>, _ policy: PolicyBinding?, of table: CatalogTable) -> Set<Int> {
        if ofFilter.isEmpty { return [] }
        let judged = policy?.row.columns.filter(\.isNeeded).map(\.slot) ?? []
        return table.sources(of: ofFilter.union(judged))
    }

    /// True if a policy of the table reads the column in this slot.
    public func isJudged(by slot: Int) -> Bool {
        policy?.row.columns.contains { $0.slot == slot && $0.isNeeded } ?? false
    }
}
