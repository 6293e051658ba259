import Auth
import Bytes
import Catalog
import Change
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Policy
import Positions
import Protocol
import Snapshots
import WebSocket

extension Channel {
    /// Snapshot that the client of a parked channel receives.
    enum RunningSnapshot {
        /// Other snapshots of the same session come first.
        case waiting(SnapshotPlan)
        /// The hub is sending the rows of the snapshot.
        case told(SnapshotProgress)
    }
}

/// Rows that a channel is to get, and why.
struct SnapshotPlan {
    enum Purpose {
        /// All rows, before changes: at the join, or because the client may see other rows than before.
        case allRows
        /// Rows that came into the client's sight.
        case enteringRows
    }

    let parts: [SnapshotPart]
    let purpose: Purpose
}

/// Part of a snapshot: rows of one table for one binding.
struct SnapshotPart {
    /// Index of the part's binding among the channel's bindings.
    let binding: Int
    let selection: TableSelection
}

/// Progress of a snapshot that the hub is sending to a channel.
struct SnapshotProgress {
    /// Ticket that the events of this snapshot contain. The hub ignores events with another ticket.
    let number: UInt64
    let plan: SnapshotPlan
    let ticket: SnapshotTicket
    /// Envelopes for the snapshot's rows, by the index of a query in `SnapshotRequest.selections`.
    let envelopes: [ChangeEnvelope]
    var start: SnapshotStart?
    var rowCount = 0
}

/// Snapshots of channels that begin with the existing rows. The hub sends the rows page by page, as fast as the socket
/// takes them, while the channel's changes stay in the log. Then the channel catches up from the snapshot's position.
final class LoopSnapshots: LoopPart {
    unowned let home: ProjectLoop
    /// Places (indices) of channels that began with a snapshot, while the log may still contain transactions that are
    /// in the snapshot.
    private var exclusions: Set<UInt32> = []
    /// Places (indices) of parked channels whose rows are read again, because PostgreSQL did not show a commit yet.
    private var tooOld: Set<UInt32> = []
    /// Time (monotonic nanoseconds) at which they are read again.
    private var readAgainAt: UInt64 = 0

    init(of home: ProjectLoop) { self.home = home }

    // MARK: Beginning

    /// Starts the channel's snapshot, if one is wanted, the channel is open and its bindings are placed.
    func begin(_ channel: Channel) {
        guard channel.position.snapshot == .wanted, channel.isOpen, channel.delivery.follower != nil,
            !channel.delivery.isResting,
            channel.ticket == 0, channel.bindings.allSatisfy({ $0.parameters == nil || $0.outcome != .nothing })
        else { return }
        do throws(SnapshotRefusal) {
            let plan = SnapshotPlan(parts: try parts(of: channel), purpose: .allRows)
            guard park(channel, for: plan, { .rowsDue($0) }) else { throw .logNotBegun }
            queue(channel)
        } catch {
            refuseSnapshot(of: channel, error)
        }
    }

    /// Parks the channel for rows that the client gets. Returns false if it cannot be parked now.
    func park(
        _ channel: Channel, for plan: SnapshotPlan, _ event: (ReaderProgress?) -> ChannelPosition.Event
    ) -> Bool {
        home.returns.isToldOfLoss(channel)
        home.park(channel, metrics.parked[.snapshot], event)
        guard channel.position.snapshot == .running else { return false }
        channel.snapshot = .waiting(plan)
        return true
    }

    /// Starts the rows of a channel that is parked for them, or lets it wait for those of other channels of the session.
    func queue(_ channel: Channel) {
        assert(!channel.session.snapshots.contains(channel.place), "a channel waits once for its snapshot")
        channel.session.snapshots.append(channel.place)
        if channel.session.snapshots.count == 1 { startSnapshot(of: channel) }
    }

    /// Returns the parts of the channel's snapshot, one for each table of a binding. Rows are sent as inserts, so
    /// bindings without insert events have none.
    func parts(of channel: Channel) throws(SnapshotRefusal) -> [SnapshotPart] {
        let text = project.catalog.snapshot?.text ?? .unknown
        var parts: [SnapshotPart] = []
        var isHeard = false
        for index in channel.bindings.indices {
            let binding = channel.bindings[index]
            guard binding.wantsSnapshot, let parameters = binding.parameters,
                parameters.event == .all || parameters.event == .insert
            else { continue }
            isHeard = true
            for placed in binding.tables {
                do throws(TableSelection.Refusal) {
                    let selection = try TableSelection(
                        placed.binding, filter: parameters.filter, text: text)
                    parts.append(SnapshotPart(binding: index, selection: selection))
                } catch {
                    throw SnapshotRefusal(error)
                }
            }
        }
        guard !parts.isEmpty else { throw isHeard ? .noTable : .nothingWanted }
        return parts
    }

    private func startSnapshot(of channel: Channel) {
        guard case .waiting(let plan)? = channel.snapshot else { return }
        assert(channel.session.snapshots.first == channel.place, "a session takes one snapshot at a time")
        guard let snapshots = project.services.snapshots else { return fail(channel, .databaseAway) }
        let request = SnapshotRequest(
            role: channel.claims.role.text, claims: channel.claims.json.text, plan.parts.map(\.selection),
            maximumBodyBytes: project.settings.maximumBodyBytes, maximumRows: Limits.maximumSnapshotRows,
            reason: plan.purpose == .allRows ? .snapshot : .entering)
        let (place, number) = (channel.place, home.nextTicket())
        let ticket = snapshots.take(request) { [mailbox = home.mailbox] event in
            mailbox.post(.snapshot(channel: place, ticket: number, event))
        }
        channel.snapshot = .told(
            SnapshotProgress(
                number: number, plan: plan, ticket: ticket,
                envelopes: plan.parts.map { envelope($0, channel) }))
    }

    private func envelope(_ part: SnapshotPart, _ channel: Channel) -> ChangeEnvelope {
        if case .feed(let feed) = channel.recipient { return ChangeEnvelope(feed.form).record() }
        let (version, topic) = (channel.session.terms.version, channel.topic)
        if channel.isLegacy { return ChangeEnvelope(version, topic: topic.rawBytes, legacy: .insert) }
        return ChangeEnvelope(version, topic: topic.rawBytes, ids: [channel.bindings[part.binding].id])
    }

    // MARK: Telling

    func heard(_ event: SnapshotEvent, _ number: UInt64, at place: UInt32) {
        guard let channel = home.channels[place], case .told(var telling)? = channel.snapshot, telling.number == number
        else {
            return
        }
        switch event {
        case .begun(let start):
            assert(telling.start == nil, "a snapshot begins once")
            if isTooOld(start, telling.plan.purpose, for: channel) { return readAgainLater(telling, for: channel) }
            telling.start = start
            channel.snapshot = .told(telling)
            goOn(channel)
        case .page(let page):
            send(page, telling, to: channel)
            telling.rowCount += page.rows.count
            let counted = telling.start?.rowCount ?? 0
            assert(telling.rowCount <= counted, "no more rows are sent than were counted")
            channel.snapshot = .told(telling)
            goOn(channel)
        case .complete: completeSnapshot(of: channel, telling)
        case .failed(let refusal): fail(channel, refusal)
        }
    }

    /// True if PostgreSQL does not show yet the transaction because of which the client gets the rows, or, for rows
    /// beside those that the client has, some other transaction that the log has before the channel's place.
    private func isTooOld(_ start: SnapshotStart, _ purpose: SnapshotPlan.Purpose, for channel: Channel) -> Bool {
        if channel.otherRows.hasTold(start.position.offset) { return true }
        guard purpose == .enteringRows, let parked = channel.position.parkedAt else { return false }
        return start.position.epoch != parked.epoch || start.position.offset < parked.offset
    }

    /// Reads the rows again after a pause. The channel stays parked, so that it misses nothing.
    private func readAgainLater(_ telling: SnapshotProgress, for channel: Channel) {
        telling.ticket.cancel()
        metrics.snapshots[.cancelled].add()
        channel.snapshot = .waiting(telling.plan)
        hasLeftLine(channel)
        tooOld.insert(channel.place)
        readAgainAt = loop.now + Limits.readAgainInterval.wholeNanoseconds
        home.lookAgainLater()
    }

    /// Starts the rows again of which PostgreSQL did not show everything.
    func looksAgain() {
        if tooOld.isEmpty { return }
        guard loop.now >= readAgainAt else { return home.lookAgainLater() }
        for place in tooOld.sorted() {
            guard let channel = home.channels[place], case .waiting? = channel.snapshot,
                !channel.session.snapshots.contains(place)
            else { continue }
            queue(channel)
        }
        tooOld = []
    }

    /// Requests the next page of the channel's snapshot, unless the socket is slow.
    func goOn(_ channel: Channel) {
        guard case .told(let telling)? = channel.snapshot, telling.start != nil else { return }
        if !channel.session.isSlow { telling.ticket.next() }
    }

    private func send(_ page: SnapshotPage, _ telling: SnapshotProgress, to channel: Channel) {
        let bytes = page.bytes
        for row in page.rows {
            clients.feeds.send(bytes.rawBytes.extracting(row.body), in: telling.envelopes[row.selection], to: channel)
        }
    }

    // MARK: Ending

    /// Records that the log's next changes for the channel must leave out the transactions in its snapshot.
    func leaveOutSeen(_ channel: Channel) { exclusions.insert(channel.place) }

    private func completeSnapshot(of channel: Channel, _ telling: SnapshotProgress) {
        guard let start = telling.start else { return fail(channel, .databaseAway) }
        assert(telling.rowCount == start.rowCount, "all rows that were counted are told")
        metrics.snapshots[.complete].add()
        guard telling.plan.purpose == .allRows else { return completeSet(of: channel, telling) }
        let position = channel.position.position(afterRowsAt: start.position)
        let text = "Snapshot complete: \(telling.rowCount) rows at \(position)"
        leave(channel, behind: start)
        var notice = ChannelNotice(.ok, text, .snapshotComplete, from: .system)
        (notice.position, notice.rows) = ("\(position)", telling.rowCount)
        home.tell(channel, notice)
    }

    private func completeSet(of channel: Channel, _ telling: SnapshotProgress) {
        leaveLine(channel)
        home.take(.otherRowsEnded, channel)
        var notice = ChannelNotice(
            .ok, "Set complete: \(telling.rowCount) rows came into sight", .setComplete, from: .system)
        notice.rows = telling.rowCount
        home.tell(channel, notice)
    }

    /// Ends a snapshot with an error, and tells the client. The client receives changes from its join on. If it has
    /// received some rows, it receives changes from the position of these rows on.
    func fail(_ channel: Channel, _ refusal: SnapshotRefusal) {
        var start: SnapshotStart?
        let purpose: SnapshotPlan.Purpose
        switch channel.snapshot {
        case nil: return
        case .waiting(let plan): purpose = plan.purpose
        case .told(let telling):
            telling.ticket.cancel()
            start = telling.start
            purpose = telling.plan.purpose
        }
        switch purpose {
        case .allRows:
            leave(channel, behind: start)
            refuseSnapshot(of: channel, refusal)
        case .enteringRows:
            metrics.snapshots[.failed].add()
            leaveLine(channel)
            home.take(.otherRowsEnded, channel)
            home.reports.missed(channel, .otherRows)
        }
    }

    private func refuseSnapshot(of channel: Channel, _ refusal: SnapshotRefusal) {
        metrics.snapshots[.failed].add()
        home.take(.rowsRefused(isPassing: refusal.isPassing), channel)
        // Some clients join again at each error, so this is an error only if joining again may help.
        let text = "No snapshot: \(refusal.text); changes are told from here on"
        home.tell(channel, ChannelNotice(refusal.isPassing ? .error : .ok, text, .snapshotFailed, from: .system))
    }

    /// Unparks the channel. It continues at the snapshot's position, or where it was parked if no snapshot began.
    private func leave(_ channel: Channel, behind start: SnapshotStart?) {
        leaveLine(channel)
        home.take(.rowsEnded(at: start?.position, seen: start?.seen), channel)
    }

    private func leaveLine(_ channel: Channel) {
        assert(channel.delivery.follower == nil, "a channel is parked while it gets its rows")
        channel.snapshot = nil
        hasLeftLine(channel)
    }

    /// Cancels the snapshot of a channel that has ended.
    func giveUp(_ channel: Channel) {
        exclusions.remove(channel.place)
        guard let snapshot = channel.snapshot else { return }
        metrics.snapshots[.cancelled].add()
        if case .told(let telling) = snapshot { telling.ticket.cancel() }
        channel.snapshot = nil
        hasLeftLine(channel)
    }

    private func hasLeftLine(_ channel: Channel) {
        let wasFirst = channel.session.snapshots.first == channel.place
        channel.session.snapshots.removeAll { $0 == channel.place }
        guard wasFirst, let next = channel.session.snapshots.first, let following = home.channels[next] else { return }
        startSnapshot(of: following)
    }

    /// Ends the leaving out of transactions for channels whose snapshots the log has passed completely.
    func forgetPassed() {
        if exclusions.isEmpty { return }
        // `covered` is read first, so that the log checked next contains everything before it.
        let covered = project.delivery.log.covered().rawValue
        guard let end = project.delivery.log.end()?.state.position.offset, home.live.pipeline.frontier >= end else {
            return
        }
        for place in exclusions.sorted() {
            // Changes that wait for an answer may be read from the log again, with all changes after them.
            guard let channel = home.channels[place], channel.delivery.follower === home.live,
                let seen = channel.position.seen,
                seen.isBehind(covered), home.live.pipeline.frontier >= channel.position.floor, !home.live.holds(channel)
            else { continue }
            home.take(.rowsPassed, channel)
            exclusions.remove(place)
            // From now on, the client's acknowledgements apply to this channel.
            if channel.resumeEntry != nil { clients.receipts.pingNext(channel.session.connection) }
        }
    }
}

extension SnapshotRefusal {
    fileprivate init(_ refusal: TableSelection.Refusal) {
        switch refusal {
        case .notReadable: self = .notReadable
        case .noPrimaryKey: self = .noPrimaryKey
        case .otherTable: self = .tableChanged
        case .onlyEvents: self = .onlyEvents
        }
    }
}
