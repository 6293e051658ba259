import Asking
import Auth
import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Judging
import Matching
import Net
import Policy
import Protocol
import System
import WebSocket

/// What is told of bindings that cannot give all that somebody may expect.
extension Follower {
    /// Why a filter would never match, where the resolver could not know: nobody computes a column that it reads.
    func refusal(of tables: [TableBinding], _ request: BindingRequest) -> ClientText? {
        for table in tables {
            let computed = Set(table.table.computed)
            guard let slot = table.predicate?.slots.first(where: computed.contains), !project.mayCompute else {
                continue
            }
            return BindingMessages.refusal(
                BindingMessages.isNotComputed(table.table.columns[slot], of: table.table), request)
        }
        return nil
    }

    /// What the publication does not give, or what of it is not made up for.
    private func publicationWarnings(_ table: TableBinding) -> [ClientText] {
        guard let publication = project.catalog.snapshot?.publication, !table.isKeptSecret else { return [] }
        var warnings: [ClientText] = []
        if !table.unpublished.isEmpty {
            warnings.append(
                BindingMessages.areNotPublished(
                    table.unpublished, of: table.table, table.table.operations, publication))
        }
        if table.table.hasRowFilter { warnings.append(BindingMessages.rowsAreLeftOut(table.table, publication)) }
        let computed = table.table.computed
        let told = computed.filter(table.delivered.contains)
        if !told.isEmpty || computed.contains(where: table.isJudged(by:)), !project.mayCompute {
            warnings.append(
                BindingMessages.areNotComputed(told.map { table.table.columns[$0] }, of: table.table))
        }
        return warnings
    }

    /// What the client may not expect of its bindings.
    func warnings(
        about tables: [TableBinding], _ held: [ObjectIdentifier: ActivePolicy], _ role: String
    ) -> [ClientText] {
        var warnings: [ClientText] = []
        for table in tables {
            warnings += publicationWarnings(table)
            if !table.isKeptSecret,
                let refused = BindingMessages.rowsAreRefused(table.table, table.access, role)
            {
                warnings.append(refused)
            }
            if let warning = warning(aboutDeletesOf: table) { warnings.append(warning) }
            guard let policy = table.policy else { continue }
            if table.isKeptSecret {
                warnings.append(BindingMessages.nothingIsReadable(table.table))
                continue
            }
            if let warning = policy.warning { warnings.append(ClientText(.policyNotJudged, warning)) }
            if held[ObjectIdentifier(policy)]?.predicate?.mayAskPolicy == true,
                case .refused = project.policyEvaluator.availability
            {
                warnings.append(BindingMessages.nobodyDecides(table.table))
            }
            // Who sees nothing anyway has been told.
            guard policy.rowPolicy.term != .never else { continue }
            let judged = table.table.sources(of: Set(policy.row.columns.filter(\.isNeeded).map(\.slot)))
            if table.operations.contains(.delete), !table.table.identifies(judged), project.settings.deletesAreStrict {
                warnings.append(
                    table.table.isRecallable
                        ? BindingMessages.deletesAreRecalled(table.table)
                        : BindingMessages.deletesAreHidden(table.table))
            }
        }
        return Array(warnings.prefix(Limits.maximumBindingWarnings))
    }

    /// Of a filter that looks at what deletes do not say of their row.
    private func warning(aboutDeletesOf binding: TableBinding) -> ClientText? {
        guard binding.operations.contains(.delete), !binding.isKeptSecret, let filter = binding.predicate,
            !binding.table.identifies(Set(filter.slots))
        else { return nil }
        return binding.table.isRecallable
            ? BindingMessages.filteredDeletesAreRecalled(binding.table)
            : BindingMessages.filteredDeletesAreHidden(binding.table)
    }

    /// Of rows that updates take away, where these do not say what the row was.
    func warning(aboutMovesOf binding: TableBinding) -> ClientText? {
        guard binding.hearsOfMoves else { return nil }
        let columns = binding.policy?.row.columns.filter(\.isNeeded).map(\.slot) ?? []
        let judged = binding.table.sources(of: Set(columns + (binding.predicate?.slots ?? [])))
        if binding.table.identifies(judged) { return nil }
        return binding.table.isRecallable
            ? BindingMessages.movesAreRecalled(binding.table) : BindingMessages.movesAreHidden(binding.table)
    }

}
