import Policy
import Protocol

/// Warnings about unexpected limits of a subscribed table. Clients see them at the join, operators in `tidewire
/// doctor`.
extension TableBinding {
    /// Means by which the hub can supply data that changes lack.
    public struct Means: Sendable {
        public var publication: String
        /// True if PostgreSQL computes generated columns for the hub.
        public var mayCompute: Bool
        /// True if the hub has no login to ask PostgreSQL about rows that only PostgreSQL can decide on.
        public var nobodyDecides: Bool
        /// True if a delete is sent only to clients that could see the deleted row.
        public var deletesAreStrict: Bool

        public init(publication: String, mayCompute: Bool, nobodyDecides: Bool, deletesAreStrict: Bool) {
            self.publication = publication
            self.mayCompute = mayCompute
            self.nobodyDecides = nobodyDecides
            self.deletesAreStrict = deletesAreStrict
        }
    }

    /// - Parameter asksPostgres: true if the hub asks PostgreSQL to decide the policy for this client's rows.
    public func warnings(for role: String, by means: Means, asksPostgres: Bool) -> [ClientText] {
        var warnings = publicationWarnings(means)
        if !isKeptSecret, let refused = BindingMessages.rowsAreRefused(table, access, role) { warnings.append(refused) }
        if let warning = warningAboutFilteredDeletes { warnings.append(warning) }
        guard let policy else { return warnings }
        if isKeptSecret { return warnings + [BindingMessages.nothingIsReadable(table)] }
        if let warning = policy.warning { warnings.append(ClientText(.policyNotJudged, warning)) }
        if asksPostgres, means.nobodyDecides { warnings.append(BindingMessages.nobodyDecides(table)) }
        // A client that sees no rows at all has already received a warning.
        guard policy.rowPolicy.term != .never else { return warnings }
        let judged = table.sources(of: Set(policy.row.columns.filter(\.isNeeded).map(\.slot)))
        if operations.contains(.delete), !table.identifies(judged), means.deletesAreStrict {
            warnings.append(
                table.isRecallable
                    ? BindingMessages.deletesAreRecalled(table) : BindingMessages.deletesAreHidden(table))
        }
        return warnings
    }

    /// Returns warnings about operations, rows and columns that the publication omits and the hub cannot supply.
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

    /// Warning about a filter on columns that deletes do not contain; nil if deletes contain all of the filter's
    /// columns.
    private var warningAboutFilteredDeletes: ClientText? {
        guard operations.contains(.delete), !isKeptSecret, let filter = predicate,
            !table.identifies(Set(filter.slots))
        else { return nil }
        return table.isRecallable
            ? BindingMessages.filteredDeletesAreRecalled(table) : BindingMessages.filteredDeletesAreHidden(table)
    }

    /// True if a policy reads the column.
    public func isJudged(by slot: Int) -> Bool {
        policy?.row.columns.contains { $0.slot == slot && $0.isNeeded } ?? false
    }
}
