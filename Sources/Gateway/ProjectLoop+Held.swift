import Bytes
import Catalog
import Delivery
import Diagnostics
import EventLog
import Net

/// Tables that the log has a transaction of which PostgreSQL does not show yet, because its commit waits for a standby.
/// Whether a policy or privilege changed before it can be asked only when it is visible.
struct HeldTables {
    /// The transactions of each.
    var transactions: [UInt32: Set<UInt32>] = [:]
    /// All channels that listen to them are parked.
    var isComplete = true
    /// Channels were bound since that was looked at.
    var hasNewListeners = false

    var isEmpty: Bool { transactions.isEmpty }
    /// Tables to which no channel of the loop listens.
    var unheard: Set<UInt32> { isComplete ? Set(transactions.keys) : [] }
}

/// Commits that wait hold up the listeners of their own tables only: their channels are parked at that place of the log, and
/// come back from there when PostgreSQL shows the commits. All others go on.
extension ProjectLoop {
    func hold(_ found: [HeldTable]) {
        if found.isEmpty { return }
        for held in found { heldTables.transactions[held.table, default: []].insert(held.xid) }
        parkListenersOfHeldTables()
        lookAgainLater()
    }

    /// False while somebody listens to such a table who cannot be parked yet: nothing is read then.
    func holdsAllConcerned() -> Bool {
        defer { heldTables.hasNewListeners = false }
        guard !heldTables.isEmpty else { return true }
        if heldTables.hasNewListeners || !heldTables.isComplete { parkListenersOfHeldTables() }
        if !heldTables.isComplete { lookAgainLater() }
        return heldTables.isComplete
    }

    private func parkListenersOfHeldTables() {
        let tables = Set(heldTables.transactions.keys)
        heldTables.isComplete = true
        for place in channels.indices {
            guard let channel = channels[place] else { continue }
            let concerned = channel.tablesJudgedBy.intersection(tables)
            guard !concerned.isEmpty else { continue }
            channel.heldBy = concerned
            park(channel, metrics.parked[.standby])
            if channel.follower != nil {
                channel.heldBy = []
                heldTables.isComplete = false
            }
        }
        for follower in followers {
            follower.pipeline.unheardTables = heldTables.unheard
            follower.pipeline.readOnUnheard()
        }
        loop.turnAgain()
    }

    /// Channels go on whose tables' transactions are all visible by now.
    func releaseHeldTables() {
        guard !heldTables.isEmpty else { return }
        // Behind a gap PostgreSQL may be another that does not know them.
        let isBehindGap = live.pipeline.epoch != project.delivery.log.end()?.state.position.epoch
        for (table, transactions) in heldTables.transactions {
            let hidden: Set<UInt32> = isBehindGap ? [] : transactions.filter { !live.pipeline.hasSeen($0) }
            heldTables.transactions[table] = hidden.isEmpty ? nil : hidden
        }
        for follower in followers { follower.pipeline.unheardTables = heldTables.unheard }
        let tables = Set(heldTables.transactions.keys)
        for place in channels.indices {
            guard let channel = channels[place], !channel.heldBy.isEmpty, channel.heldBy.isDisjoint(with: tables) else {
                continue
            }
            channel.heldBy = []
            unpark(channel)
        }
        guard !heldTables.isEmpty else { return }
        // Where all who are bound are parked, nobody else has the catalog looked at often.
        project.catalog.refresh(seeing: nil) { _ in }
        lookAgainLater()
    }
}

extension Channel {
    /// Tables whose policies or privileges decide what it hears.
    fileprivate var tablesJudgedBy: Set<UInt32> {
        var tables: Set<UInt32> = []
        for binding in bindings {
            for placed in binding.tables {
                tables.insert(placed.binding.table.oid)
                for set in placed.policy?.sets ?? [] { tables.insert(set.table.oid) }
            }
        }
        return tables
    }
}
