import Auth
import Bytes
import Catalog
import Delivery
import Diagnostics
import Net
import Policy
import Positions
import Protocol
import Snapshots

extension Channel {
    /// Rows that may have come into the client's sight or left it although they did not change, and that the client has
    /// yet to be told of.
    struct OtherRows {
        /// Rows by the oid of their table.
        private(set) var due: [UInt32: TouchedRows] = [:]
        /// Offset of the newest transaction in `due`; nil if no transaction caused it.
        private var newest: UInt64?
        /// Offset of the last transaction of which the client was told. A reader that goes back reads it again.
        private var toldAt: UInt64?
        /// Time (monotonic nanoseconds) until which the rows that were read so far use up the channel's allowance.
        private var usedUntil: UInt64 = 0

        var isEmpty: Bool { due.isEmpty }

        mutating func add(_ rows: TouchedRows, of table: UInt32, at offset: UInt64?) {
            due[table] = due[table]?.union(rows) ?? rows
            newest = [newest, offset].compactMap(\.self).max()
        }

        /// True if the client was told of the transaction at this offset.
        func hasTold(_ offset: UInt64) -> Bool { toldAt.map { offset <= $0 } ?? false }

        /// Takes one reading of rows from the channel's allowance. Returns false if nothing is left.
        mutating func takeReading(at now: UInt64) -> Bool {
            let begin = max(usedUntil, now)
            let cost = Limits.otherRowsInterval.wholeNanoseconds
            guard begin - now + cost <= UInt64(Limits.otherRowsBurst) * cost else { return false }
            usedUntil = begin + cost
            return true
        }

        mutating func isTold() {
            due = [:]
            toldAt = [toldAt, newest].compactMap(\.self).max()
            newest = nil
        }
    }
}

/// Everything that decides which rows of a table a binding delivers, besides the rows and the memberships.
struct RowSight: Equatable {
    private let residual: Residual?
    private let columns: [String]
    private let access: TableBinding.Access
    private let followedSince: [UInt64]
    /// Subject of the token, where PostgreSQL decides, which may read it.
    private let subject: String

    init(_ binding: TableBinding, _ policy: ActivePolicy?, _ channel: Channel) {
        residual = policy?.residual
        columns = binding.delivered.map { binding.table.columns[$0].name }
        access = binding.access
        followedSince = policy?.sets.map(\.followedSince) ?? []
        subject = policy?.residual.mayAsk == true ? channel.claims.subject.text : ""
    }
}

/// Rows that come into a client's sight or leave it although they did not change: a membership, a policy, a right or the
/// token did. The hub tells clients that ask for `moves`.
///
/// A client that began with all rows gets all rows again. Another one gets the rows that came into its sight, and the
/// condition on those that may have left. If the hub cannot name the rows, the client is told to fetch.
final class LoopSets: LoopPart {
    unowned let home: ProjectLoop
    /// Places (indices) of the channels that have yet to be told.
    private var due: Set<UInt32> = []
    /// True if a channel was noted since the last time that clients were told. Its follower reads on after that.
    private(set) var hasNews = false

    init(of home: ProjectLoop) { self.home = home }

    // MARK: Noting

    /// Records that the channel may see other rows of the table than before.
    ///
    /// - Parameter offset: offset of the transaction that caused it; nil if none did.
    func note(_ rows: TouchedRows, of table: UInt32, _ channel: Channel, at offset: UInt64? = nil) {
        guard channel.bindings.contains(where: { $0.hearsOfOtherRows(of: table) }) else { return }
        if let offset, channel.otherRows.hasTold(offset) || offset < channel.position.floor { return }
        channel.otherRows.add(rows, of: table, at: offset)
        due.insert(channel.place)
        hasNews = true
    }

    /// Compares what the channel's binding delivers now with what it delivered before.
    func compareSights(of index: Int, _ channel: Channel, on follower: Follower) {
        guard channel.bindings[index].wantsMoves else { return }
        for placed in channel.bindings[index].tables {
            let (sight, table) = (RowSight(placed.binding, placed.policy, channel), placed.binding.table.oid)
            let former = channel.bindings[index].sights.updateValue(sight, forKey: table)
            if let former, former != sight {
                note(.all, of: table, channel)
            } else if former != nil || channel.position.isResumed, let policy = placed.policy,
                let rows = follower.pipeline.rowsTouchedAhead(by: policy)
            {
                note(rows, of: table, channel, at: follower.pipeline.frontier)
            }
        }
    }

    /// Tells the client that its binding has failed, so that it no longer sees the rows that it has.
    func bindingFailed(_ index: Int, _ channel: Channel) {
        if channel.bindings[index].sights.isEmpty { return }
        channel.bindings[index].sights = [:]
        home.reports.missed(channel, .otherRows)
    }

    // MARK: Telling

    /// Tells the clients that may see other rows than before, before their followers read on.
    func tellDue() {
        hasNews = false
        for place in due.sorted() where home.channels[place].map(tell) ?? true { due.remove(place) }
    }

    /// Tells a client. Returns false if that is not possible yet.
    private func tell(_ channel: Channel) -> Bool {
        // Rows that are still to be read show everything.
        if channel.otherRows.isEmpty || channel.position.snapshot == .wanted {
            channel.otherRows.isTold()
            return true
        }
        guard channel.isOpen, channel.delivery.follower != nil, channel.snapshot == nil, !channel.delivery.isResting,
            channel.ticket == 0, channel.bindings.allSatisfy({ $0.parameters == nil || $0.outcome != .nothing })
        else { return false }
        var plan = plan(for: channel)
        // Whose memberships change without pause fetches the rows when they have changed.
        if plan.sent != nil, !channel.otherRows.takeReading(at: loop.now) { plan = Plan(mustFetch: true) }
        if let (rows, sets) = plan.sent {
            guard home.snapshots.park(channel, for: rows, { .otherRowsDue($0) }) else { return false }
            channel.otherRows.isTold()
            say(sets, to: channel)
            home.snapshots.queue(channel)
        } else {
            channel.otherRows.isTold()
        }
        if plan.mustFetch { home.reports.missed(channel, .otherRows) }
        return true
    }

    private struct Plan {
        /// Rows that the client gets, and the sets that the hub names; no set stands for all rows.
        var sent: (SnapshotPlan, [ChangedSet])?
        var mustFetch = false
    }

    private func plan(for channel: Channel) -> Plan {
        if case .feed = channel.recipient { return Plan(mustFetch: true) }
        var plan = Plan()
        var (parts, sets): ([SnapshotPart], [ChangedSet]) = ([], [])
        for (index, binding) in channel.bindings.enumerated() {
            for placed in binding.tables {
                guard let rows = channel.otherRows.due[placed.binding.table.oid], binding.hearsOfOtherRows(of: placed)
                else { continue }
                if binding.wantsSnapshot {
                    if let all = try? home.snapshots.parts(of: channel) {
                        plan.sent = (SnapshotPlan(parts: all, purpose: .allRows), [])
                    } else {
                        plan.mustFetch = true
                    }
                } else if let (part, set) = part(rows, placed.binding, index, channel) {
                    parts.append(part)
                    if !sets.contains(set) { sets.append(set) }
                } else {
                    plan.mustFetch = true
                }
            }
        }
        if plan.sent == nil, !parts.isEmpty {
            plan.sent = (SnapshotPlan(parts: parts, purpose: .enteringRows), sets)
        } else if !parts.isEmpty {
            plan.mustFetch = true
        }
        return plan
    }

    /// Returns the query for the rows, and the set that they belong to; nil if the client does not see the column that
    /// decides, or the rows are not known.
    private func part(
        _ rows: TouchedRows, _ binding: TableBinding, _ index: Int, _ channel: Channel
    ) -> (SnapshotPart, ChangedSet)? {
        guard case .with(let slot, let values) = rows, binding.delivered.contains(slot) else { return nil }
        let texts = values.compactMap { String(validating: $0, as: UTF8.self) }.sorted()
        let column = binding.table.columns[slot]
        guard texts.count == values.count,
            let selection = try? TableSelection(
                binding, filter: channel.bindings[index].parameters?.filter,
                with: TableSelection.Values(slot: slot, texts: texts),
                text: project.catalog.snapshot?.text ?? .unknown)
        else { return nil }
        let set = ChangedSet(
            schema: binding.table.schema, table: binding.table.name, column: column.name, texts: texts,
            column.rendering.value)
        return (SnapshotPart(binding: index, selection: selection), set)
    }

    private func say(_ sets: [ChangedSet], to channel: Channel) {
        let text =
            sets.isEmpty
            ? "The rows that this channel sees may be others than before: all of them follow"
            : "Rows may have come into this channel's sight, and follow, or have left it: those of the sets"
        var notice = ChannelNotice(.ok, text, .setChanged, from: .system)
        notice.sets = sets
        home.tell(channel, notice)
    }
}

extension Channel.Binding {
    /// True if the client is told of rows of the table that come into its sight or leave it.
    fileprivate func hearsOfOtherRows(of table: UInt32) -> Bool {
        wantsMoves && tables.contains { $0.binding.table.oid == table && hearsOfOtherRows(of: $0) }
    }

    fileprivate func hearsOfOtherRows(of placed: Placement) -> Bool {
        wantsMoves && placed.binding.operations == .all && !placed.binding.readsOldRow
    }
}
