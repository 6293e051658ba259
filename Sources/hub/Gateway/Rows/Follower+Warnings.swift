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

/// Errors and warnings about bindings that cannot deliver everything that their clients may expect.
extension Follower {
    /// Returns an error if the filter reads a generated column that the stream lacks and the hub has no login to
    /// compute (`policy_database_url`): such a filter would never match. Returns an error if the filter reads the row
    /// before a change, and PostgreSQL must decide if the client may see that row. Nil otherwise. The catalog knows
    /// neither the login nor the client's claims, so the follower checks.
    func refusal(
        of tables: [TableBinding], _ held: [ObjectIdentifier: ActivePolicy], _ request: BindingRequest
    ) -> ClientText? {
        for table in tables {
            if table.readsOldRow, asksPostgres(table, held) {
                return BindingMessages.refusal(BindingMessages.oldRowsAreAsked(table.table), request)
            }
            let computed = Set(table.table.computed)
            guard let slot = table.predicate?.columns.first(where: computed.contains), !project.mayCompute else {
                continue
            }
            return BindingMessages.refusal(
                BindingMessages.isNotComputed(table.table.columns[slot], of: table.table), request)
        }
        return nil
    }

    /// True if PostgreSQL may have to decide which rows of the table the client may see.
    private func asksPostgres(_ table: TableBinding, _ held: [ObjectIdentifier: ActivePolicy]) -> Bool {
        table.policy.flatMap { held[ObjectIdentifier($0)] }?.predicate?.mayAskPolicy == true
    }

    /// Returns warnings about events that the bindings cannot deliver to the client.
    func warnings(
        about tables: [TableBinding], _ held: [ObjectIdentifier: ActivePolicy], _ role: String
    ) -> [ClientText] {
        let nobodyDecides = if case .refused = project.policyEvaluator.availability { true } else { false }
        let means = TableBinding.Means(
            publication: project.catalog.snapshot?.publication ?? "", mayCompute: project.mayCompute,
            nobodyDecides: nobodyDecides, deletesAreStrict: project.settings.deletesAreStrict)
        let warnings = tables.flatMap { table in
            table.warnings(for: role, by: means, asksPostgres: asksPostgres(table, held)).map { (table.table, $0) }
        }
        // A client knows by a warning what it will not be told of later, so each is at least named.
        let most = warnings.count > Limits.maximumBindingWarnings ? Limits.maximumBindingWarnings - 1 : warnings.count
        let rest = warnings.dropFirst(most)
        return warnings.prefix(most).map(\.1) + (rest.isEmpty ? [] : [BindingMessages.andMore(Array(rest))])
    }

    /// Returns warnings for a client that asked for departures, about rows that leave without being reported.
    func warnings(aboutMovesOf binding: TableBinding) -> [ClientText] {
        let ofTime = binding.readsClock && !binding.readsOldRow ? [BindingMessages.rowsAge(binding.table)] : []
        return ofTime + (warning(aboutMovesOf: binding).map { [$0] } ?? [])
    }

    /// Returns a warning for a client that asked for departures, if the table's updates do not identify the old row.
    /// Returns nil otherwise.
    private func warning(aboutMovesOf binding: TableBinding) -> ClientText? {
        if binding.readsOldRow { return BindingMessages.eventsDoNotMove(binding.table) }
        guard binding.hearsOfMoves else { return nil }
        let columns = binding.policy?.row.columns.filter(\.isNeeded).map(\.slot) ?? []
        let judged = binding.table.sources(of: Set(columns + (binding.predicate?.slots ?? [])))
        if binding.table.identifies(judged) { return nil }
        return binding.table.isRecallable
            ? BindingMessages.movesAreRecalled(binding.table) : BindingMessages.movesAreHidden(binding.table)
    }

    /// Returns a warning for a client that asked for rows that come and go, if PostgreSQL alone decides the policy, so
    /// that the hub does not notice when memberships change. Returns nil otherwise.
    func warning(aboutSetsOf binding: TableBinding, _ policy: ActivePolicy?) -> ClientText? {
        guard binding.hearsOfMoves, !binding.readsOldRow, policy?.residual.mayAsk == true else { return nil }
        return BindingMessages.setsAreUnknown(binding.table)
    }
}
