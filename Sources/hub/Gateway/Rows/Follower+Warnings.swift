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

/// Warnings about bindings that cannot deliver everything their clients may expect.
extension Follower {
    /// Returns why a filter would never match, in cases that the resolver cannot know: it reads a generated column that
    /// nothing computes. Returns nil if it can match.
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

    /// Returns warnings about events that the client cannot expect from its bindings.
    func warnings(
        about tables: [TableBinding], _ held: [ObjectIdentifier: ActivePolicy], _ role: String
    ) -> [ClientText] {
        let nobodyDecides = if case .refused = project.policyEvaluator.availability { true } else { false }
        let means = TableBinding.Means(
            publication: project.catalog.snapshot?.publication ?? "", mayCompute: project.mayCompute,
            nobodyDecides: nobodyDecides, deletesAreStrict: project.settings.deletesAreStrict)
        let warnings = tables.flatMap { table in
            let asks = table.policy.flatMap { held[ObjectIdentifier($0)] }?.predicate?.mayAskPolicy == true
            return table.warnings(for: role, by: means, asksPostgres: asks)
        }
        return Array(warnings.prefix(Limits.maximumBindingWarnings))
    }

    /// Returns a warning about events for rows that an update moves out of view, if the update does not identify the
    /// old row.
    func warning(aboutMovesOf binding: TableBinding) -> ClientText? {
        guard binding.hearsOfMoves else { return nil }
        let columns = binding.policy?.row.columns.filter(\.isNeeded).map(\.slot) ?? []
        let judged = binding.table.sources(of: Set(columns + (binding.predicate?.slots ?? [])))
        if binding.table.identifies(judged) { return nil }
        return binding.table.isRecallable
            ? BindingMessages.movesAreRecalled(binding.table) : BindingMessages.movesAreHidden(binding.table)
    }

}
