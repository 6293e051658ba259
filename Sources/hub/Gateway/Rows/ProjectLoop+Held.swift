import Bytes
import Catalog
import Delivery
import Diagnostics
import EventLog
import Net
import Positions

/// Tables with a transaction in the log that PostgreSQL does not show yet, because its commit waits for a standby. Only
/// once the transaction is visible, the hub can ask PostgreSQL whether a policy or privilege changed before it.
struct HeldTables {
    /// Hidden transactions of each table.
    var transactions: [UInt32: Set<UInt32>] = [:]
    /// True if all channels that listen to these tables are parked.
    var isComplete = true
    /// True if channels were bound since the last check.
    var hasNewListeners = false

    var isEmpty: Bool { transactions.isEmpty }
    /// Tables to which no channel of the loop listens.
    var unheard: Set<UInt32> { isComplete ? Set(transactions.keys) : [] }
}

/// Parking for waiting commits. Only listeners of the commit's own tables are parked, at that place of the log. These
/// channels continue from there when PostgreSQL shows the commits. All other channels go on.
extension ProjectLoop {
    func hold(_ found: [HeldTable]) {
        if found.isEmpty { return }
        for held in found { heldTables.transactions[held.table, default: []].insert(held.xid) }
        parkListenersOfHeldTables()
        lookAgainLater()
    }

    /// True if the log may be read on: all channels that listen to held tables are parked.
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
            park(channel, metrics.parked[.standby]) { .commitHidden($0) }
            if channel.position.isServed {
                heldTables.isComplete = false
            } else {
                channel.delivery.heldBy = concerned
            }
        }
        for follower in followers {
            follower.pipeline.wait.passOver(unheard: heldTables.unheard)
            follower.pipeline.wait.readOnUnheard()
        }
        loop.turnAgain()
    }

    /// Continues the channels whose tables' transactions are all visible now.
    func releaseHeldTables() {
        guard !heldTables.isEmpty else { return }
        // Behind a gap, the database may be another one that does not know the transactions.
        let isBehindGap = live.pipeline.epoch != project.delivery.log.end()?.state.position.epoch
        for (table, transactions) in heldTables.transactions {
            let hidden: Set<UInt32> = isBehindGap ? [] : transactions.filter { !live.pipeline.hasSeen($0) }
            heldTables.transactions[table] = hidden.isEmpty ? nil : hidden
        }
        for follower in followers { follower.pipeline.wait.passOver(unheard: heldTables.unheard) }
        let tables = Set(heldTables.transactions.keys)
        for place in channels.indices {
            guard let channel = channels[place], !channel.delivery.heldBy.isEmpty,
                channel.delivery.heldBy.isDisjoint(with: tables)
            else {
                continue
            }
            channel.delivery.heldBy = []
            take(.commitShown, channel)
        }
        guard !heldTables.isEmpty else { return }
        // If every bound channel is parked, nothing else makes the catalog be checked often.
        project.catalog.refresh(seeing: nil) { _ in }
        lookAgainLater()
    }
}

extension Channel {
    /// Tables whose policies or privileges decide what the channel receives.
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
