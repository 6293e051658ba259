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
import Protocol
import Snapshots
import WebSocket

extension Channel {
    /// How far a channel has come that is to be told first what rows there are.
    enum Snapshot {
        case none
        /// Its bindings are not in place yet.
        case wanted
        /// Others of its connection come first.
        case waiting([SnapshotPart])
        case told(SnapshotTelling)
    }

    /// It is parked for that: changes wait in the log.
    var isToldRows: Bool {
        switch snapshot {
        case .none, .wanted: false
        case .waiting, .told: true
        }
    }

    var isSnapshotDue: Bool { if case .none = snapshot { false } else { true } }
}

/// What is told of one table for one binding.
struct SnapshotPart {
    /// Among the channel's.
    let binding: Int
    let selection: TableSelection
}

/// A channel's rows on their way.
struct SnapshotTelling {
    /// What comes says it; what is of another is of no use.
    let number: UInt64
    let ticket: SnapshotTicket
    /// By the numbers of the selections.
    let envelopes: [ChangeEnvelope]
    var start: SnapshotStart?
    var rowCount = 0
    /// A page may come when the socket has taken what there is.
    var waitsForSocket = false
}

/// Channels that begin with the rows there are: they are told page by page, as their sockets take them, while changes wait in
/// the log. Then they go on from where the snapshot stands, as those do who come back.
extension ProjectLoop {
    // MARK: Beginning

    /// When it is joined and its bindings are in place.
    func beginSnapshot(_ channel: Channel) {
        guard case .wanted = channel.snapshot, channel.isOpen, channel.follower != nil, !channel.isResting,
            channel.ticket == 0, channel.bindings.allSatisfy({ $0.parameters == nil || $0.outcome != .nothing })
        else { return }
        isToldOfLoss(channel)
        do throws(SnapshotRefusal) {
            let parts = try parts(of: channel)
            park(channel, metrics.parked[.snapshot])
            guard channel.follower == nil else { throw .logNotBegun }
            channel.snapshot = .waiting(parts)
            channel.session.snapshots.append(channel.place)
            if channel.session.snapshots.count == 1 { startSnapshot(of: channel) }
        } catch {
            refuseSnapshot(of: channel, error)
        }
    }

    /// Rows are told as inserts: of whoever does not hear of those there is nothing to tell.
    private func parts(of channel: Channel) throws(SnapshotRefusal) -> [SnapshotPart] {
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
        guard case .waiting(let parts) = channel.snapshot else { return }
        guard let snapshots = project.services.snapshots else { return failSnapshot(of: channel, .databaseAway) }
        let request = SnapshotRequest(
            role: channel.claims.role.text, claims: channel.claims.json.text, parts.map(\.selection),
            maximumBodyBytes: project.settings.maximumBodyBytes, maximumRows: Limits.maximumSnapshotRows)
        let (place, number) = (channel.place, nextTicket())
        let ticket = snapshots.take(request) { [mailbox] event in
            mailbox.post(.snapshot(channel: place, ticket: number, event))
        }
        channel.snapshot = .told(
            SnapshotTelling(number: number, ticket: ticket, envelopes: parts.map { envelope($0, channel) }))
    }

    private func envelope(_ part: SnapshotPart, _ channel: Channel) -> ChangeEnvelope {
        if let feed = channel.session.feed { return ChangeEnvelope(feed.form).record() }
        let (version, topic) = (channel.session.version, channel.topic)
        // SAFETY: any byte is a valid UInt8, and the array outlives the calls.
        if channel.isLegacy { return ChangeEnvelope(version, topic: unsafe topic.span.bytes, legacy: .insert) }
        return ChangeEnvelope(version, topic: unsafe topic.span.bytes, ids: [channel.bindings[part.binding].id])
    }

    // MARK: Telling

    func heard(_ event: SnapshotEvent, _ number: UInt64, at place: UInt32) {
        guard let channel = channels[place], case .told(var telling) = channel.snapshot, telling.number == number else {
            return
        }
        switch event {
        case .begun(let start):
            telling.start = start
            channel.snapshot = .told(telling)
            goOnTelling(channel)
        case .page(let page):
            send(page, telling, to: channel)
            telling.rowCount += page.rows.count
            channel.snapshot = .told(telling)
            goOnTelling(channel)
        case .complete: completeSnapshot(of: channel, telling)
        case .failed(let refusal): failSnapshot(of: channel, refusal)
        }
    }

    /// No more is asked for than the socket takes.
    func goOnTelling(_ channel: Channel) {
        guard case .told(let telling) = channel.snapshot, telling.start != nil else { return }
        if !channel.session.isSlow { telling.ticket.next() }
    }

    private func send(_ page: SnapshotPage, _ telling: SnapshotTelling, to channel: Channel) {
        for row in page.rows {
            let envelope = telling.envelopes[row.selection]
            if let feed = channel.session.feed {
                // SAFETY: any byte is a valid UInt8, and the page outlives the call.
                let body = unsafe page.bytes.span.bytes.extracting(row.body)
                clients.write(body, in: envelope, to: channel.session, feed)
                continue
            }
            clients.send(channel.session) { _, writer in
                writer.append(envelope.prefix)
                // SAFETY: any byte is a valid UInt8, and the page outlives the call.
                writer.append(unsafe page.bytes.span.bytes.extracting(row.body))
                envelope.appendEnd(to: &writer)
            }
        }
    }

    // MARK: Ending

    private func completeSnapshot(of channel: Channel, _ telling: SnapshotTelling) {
        guard let start = telling.start else { return failSnapshot(of: channel, .databaseAway) }
        assert(telling.rowCount == start.rowCount, "all rows that were counted are told")
        metrics.snapshots[.complete].add()
        let text = "Snapshot complete: \(telling.rowCount) rows at \(start.position)"
        leave(channel, behind: start)
        if let feed = channel.session.feed {
            return tell(feed, channel, .ok, ClientText(.snapshotComplete, text), rows: telling.rowCount)
        }
        clients.send(channel.session) { encoder, writer in
            encoder.appendSystem(
                .ok, .system, text, .snapshotComplete, position: "\(start.position)", rows: telling.rowCount,
                topic: channel.topic, channel.joinRef, to: &writer)
        }
    }

    /// It is told why, and hears of changes all the same: from where it was joined, or behind the rows that it has.
    func failSnapshot(of channel: Channel, _ refusal: SnapshotRefusal) {
        guard channel.isToldRows else { return }
        var start: SnapshotStart?
        if case .told(let telling) = channel.snapshot {
            telling.ticket.cancel()
            start = telling.start
        }
        leave(channel, behind: start)
        refuseSnapshot(of: channel, refusal)
    }

    private func refuseSnapshot(of channel: Channel, _ refusal: SnapshotRefusal) {
        metrics.snapshots[.failed].add()
        channel.snapshot = .none
        channel.lacksSnapshot = refusal.isPassing
        // Some clients join again at each error: they are told so only where that helps.
        if let feed = channel.session.feed {
            let text = "No snapshot: \(refusal.text); changes are told from here on"
            return tell(feed, channel, refusal.isPassing ? .error : .ok, ClientText(.snapshotFailed, text))
        }
        clients.send(channel.session) { encoder, writer in
            encoder.appendSystem(
                refusal.isPassing ? .error : .ok, .system,
                "No snapshot: \(refusal.text); changes are told from here on", .snapshotFailed,
                topic: channel.topic, channel.joinRef, to: &writer)
        }
    }

    /// From the log, where the snapshot stands, or where it was parked.
    private func leave(_ channel: Channel, behind start: SnapshotStart?) {
        channel.snapshot = .none
        hasLeftLine(channel)
        if let start, case .from(let parked) = channel.recovery {
            channel.seen = start.seen
            channel.floor = start.position.offset
            channel.toldAt = start.position.offset
            // Messages of the database wait from where it was parked, changes from the snapshot's place.
            if start.position.offset < parked.offset { channel.recovery = .from(start.position) }
            leavingOut.insert(channel.place)
        }
        unpark(channel)
    }

    /// It is gone.
    func giveUpSnapshot(of channel: Channel) {
        leavingOut.remove(channel.place)
        guard channel.isToldRows else { return }
        metrics.snapshots[.cancelled].add()
        if case .told(let telling) = channel.snapshot { telling.ticket.cancel() }
        channel.snapshot = .none
        hasLeftLine(channel)
    }

    private func hasLeftLine(_ channel: Channel) {
        let wasFirst = channel.session.snapshots.first == channel.place
        channel.session.snapshots.removeAll { $0 == channel.place }
        guard wasFirst, let next = channel.session.snapshots.first, let following = channels[next] else { return }
        startSnapshot(of: following)
    }

    /// Those for whom the log has come to all that their snapshots showed: nothing is left out any more.
    func forgetSnapshots() {
        if leavingOut.isEmpty { return }
        // In this order: what is covered is in the log that is looked at then.
        let covered = project.delivery.log.covered().rawValue
        guard let end = project.delivery.log.end()?.state.position.offset, live.pipeline.frontier >= end else { return }
        for place in leavingOut.sorted() {
            // What waits for an answer may be told from the log again, and what comes behind it too.
            guard let channel = channels[place], channel.follower === live, let seen = channel.seen,
                seen.isBehind(covered), live.pipeline.frontier >= channel.floor,
                channel.listener.map({ !live.pipeline.isHeld($0) }) ?? true
            else { continue }
            channel.seen = nil
            channel.floor = 0
            leavingOut.remove(place)
            // From here on it can be asked how far it got.
            if channel.departure != nil { clients.pingsDue.append(channel.session.connection) }
        }
    }
}

extension SnapshotRefusal {
    fileprivate init(_ refusal: TableSelection.Refusal) {
        switch refusal {
        case .notReadable: self = .notReadable
        case .noPrimaryKey: self = .noPrimaryKey
        case .otherTable: self = .tableChanged
        }
    }
}
