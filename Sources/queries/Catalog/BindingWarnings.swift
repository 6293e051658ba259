import Policy
import Protocol

/// What somebody who subscribes may not expect of a table: clients are told it at the join, operators by `tidewire doctor`.
extension TableBinding {
    /// What a hub can do about what changes lack.
    public struct Means: Sendable {
        public var publication: String
        /// PostgreSQL computes generated columns for it.
        public var mayCompute: Bool
        /// PostgreSQL may not be asked about rows that only it can decide on.
        public var nobodyDecides: Bool
        /// Of a deleted row only those are told who could see it.
        public var deletesAreStrict: Bool

        public init(publication: String, mayCompute: Bool, nobodyDecides: Bool, deletesAreStrict: Bool) {
            self.publication = publication
            self.mayCompute = mayCompute
            self.nobodyDecides = nobodyDecides
            self.deletesAreStrict = deletesAreStrict
        }
    }

    /// `asksPostgres`: of rows by its policy, for whoever is told.
    public func warnings(for role: String, by means: Means, asksPostgres: Bool) -> [ClientText] {
        var warnings = publicationWarnings(means)
        if !isKeptSecret, let refused = BindingMessages.rowsAreRefused(table, access, role) { warnings.append(refused) }
        if let warning = warningAboutFilteredDeletes { warnings.append(warning) }
        guard let policy else { return warnings }
        if isKeptSecret { return warnings + [BindingMessages.nothingIsReadable(table)] }
        if let warning = policy.warning { warnings.append(ClientText(.policyNotJudged, warning)) }
        if asksPostgres, means.nobodyDecides { warnings.append(BindingMessages.nobodyDecides(table)) }
        // Who sees nothing anyway has been told.
        guard policy.rowPolicy.term != .never else { return warnings }
        let judged = table.sources(of: Set(policy.row.columns.filter(\.isNeeded).map(\.slot)))
        if operations.contains(.delete), !table.identifies(judged), means.deletesAreStrict {
            warnings.append(
                table.isRecallable
                    ? BindingMessages.deletesAreRecalled(table) : BindingMessages.deletesAreHidden(table))
        }
        return warnings
    }

    /// What the publication does not give, or what of it is not made up for.
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

    /// Of a filter that looks at what deletes do not say of their row.
    private var warningAboutFilteredDeletes: ClientText? {
        guard operations.contains(.delete), !isKeptSecret, let filter = predicate,
            !table.identifies(Set(filter.slots))
        else { return nil }
        return table.isRecallable
            ? BindingMessages.filteredDeletesAreRecalled(table) : BindingMessages.filteredDeletesAreHidden(table)
    }

    /// A policy reads the column.
    public func isJudged(by slot: Int) -> Bool {
        policy?.row.columns.contains { $0.slot == slot && $0.isNeeded } ?? false
    }
}
