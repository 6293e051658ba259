import Bytes
import Catalog
import Delivery
import Diagnostics
import EventLog
import Net
import Positions

/// Tables with a transaction in the log that PostgreSQL does not show yet, because its commit waits for a standby.
/// Until PostgreSQL shows it, the hub cannot find out if a policy or privilege changed before it.
struct HeldTables {
    /// Transactions (their xids) that PostgreSQL does not show yet, by table.
    var transactions: [UInt32: Set<UInt32>] = [:]
    /// True if all channels that listen to the tables in `transactions` are parked.
    var isComplete = true
    /// True if channels were bound since the last check which channels listen to the tables in `transactions`.
    var hasNewListeners = false

    var isEmpty: Bool { transactions.isEmpty }
    /// Tables in `transactions` to which no unparked channel on this loop listens; empty until this has been
    /// established.
    var unheard: Set<UInt32> { isComplete ? Set(transactions.keys) : [] }
}

/// Parking of channels for commits that PostgreSQL does not show yet. Only listeners of the commit's own tables are
/// parked, at that position in the log. They continue from there when PostgreSQL shows the commits. All other channels
/// continue without a pause.
final class LoopHeldTables: LoopPart {
    unowned let home: ProjectLoop
    private var tables = HeldTables()

    init(of home: ProjectLoop) { self.home = home }

    /// Held tables to which no unparked channel on this loop listens; empty until this has been established.
    var unheard: Set<UInt32> { tables.unheard }

    /// Records that channels were bound, so that their tables are checked.
    func noteNewListeners() { tables.hasNewListeners = true }

    func hold(_ found: [HeldTable]) {
        if found.isEmpty { return }
        for held in found { tables.transactions[held.table, default: []].insert(held.xid) }
        parkListenersOfHeldTables()
        home.lookAgainLater()
    }

    /// Returns true if followers may read on, because all channels that listen to held tables are parked.
    func holdsAllConcerned() -> Bool {
        defer { tables.hasNewListeners = false }
        guard !tables.isEmpty else { return true }
        if tables.hasNewListeners || !tables.isComplete { parkListenersOfHeldTables() }
        if !tables.isComplete { home.lookAgainLater() }
        return tables.isComplete
    }

    private func parkListenersOfHeldTables() {
        let hidden = Set(tables.transactions.keys)
        tables.isComplete = true
        for place in home.channels.indices {
            guard let channel = home.channels[place] else { continue }
            let concerned = channel.tablesJudgedBy.intersection(hidden)
            guard !concerned.isEmpty else { continue }
            home.park(channel, metrics.parked[.standby]) { .commitHidden($0) }
            if channel.position.isServed {
                tables.isComplete = false
            } else {
                channel.delivery.heldBy = concerned
            }
        }
        for follower in home.followers {
            follower.pipeline.wait.passOver(unheard: tables.unheard)
            follower.pipeline.wait.resumeIfUnlistened()
        }
        loop.turnAgain()
    }

    /// Lets parked channels continue if PostgreSQL now shows all transactions of their tables.
    func release() {
        guard !tables.isEmpty else { return }
        // After a gap the database may be another one, which does not have these transactions.
        let isBehindGap = home.live.pipeline.epoch != project.delivery.log.end()?.state.position.epoch
        for (table, transactions) in tables.transactions {
            let hidden: Set<UInt32> = isBehindGap ? [] : transactions.filter { !home.live.pipeline.hasSeen($0) }
            tables.transactions[table] = hidden.isEmpty ? nil : hidden
        }
        for follower in home.followers { follower.pipeline.wait.passOver(unheard: tables.unheard) }
        let hidden = Set(tables.transactions.keys)
        for place in home.channels.indices {
            guard let channel = home.channels[place], !channel.delivery.heldBy.isEmpty,
                channel.delivery.heldBy.isDisjoint(with: hidden)
            else {
                continue
            }
            channel.delivery.heldBy = []
            home.take(.commitShown, channel)
        }
        guard !tables.isEmpty else { return }
        // If every bound channel is parked, nothing else makes the hub read the catalog often.
        project.catalog.refresh(seeing: nil) { _ in }
        home.lookAgainLater()
    }
}

extension Channel {
    /// Tables whose policies or privileges decide which rows the channel receives, including tables of memberships.
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
