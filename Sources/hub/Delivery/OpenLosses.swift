import Bytes
import Change
import Diagnostics

/// Changes that a router could not deliver, since its last report to the loop.
struct OpenLosses {
    /// Listeners with too many waiting deliveries. The hub closes them.
    private var overfull: [UInt32] = []
    /// Listeners that may have missed a change, because PostgreSQL did not answer a question or could not be asked. The
    /// hub tells them.
    private var unanswered: Set<UInt32> = []
    /// Listeners that received an update without its unchanged values, because the log does not have these values. The
    /// hub tells their clients.
    private var lacking: Set<UInt32> = []
    /// Tables with updates that may have moved rows out of a view, although the old row is unknown. The value is the
    /// log offset of the last such update.
    private var unknownDepartures: [UInt32: UInt64] = [:]
    /// Listeners that missed changes because evaluating some filter would have taken more work than the allowance.
    var skipped: SkippedListeners
    /// Tables, by channel, whose deletes could not be matched because the deleted rows are not known.
    private var unknownRows: [UInt32: Set<UInt32>] = [:]
    /// Listeners that miss a delete because the log has the row without a value that their filter or policy reads.
    private var incompleteRows: Set<UInt32> = []
    /// Counter of changes that could not be matched because a value that a filter or policy reads is absent.
    private let absent: Counter

    init(_ drops: CounterFamily<ProjectMetrics.DropReason>) {
        skipped = SkippedListeners(drops: drops[.tooMuchWork])
        absent = drops[.absentValue]
    }

    /// True if the loop has not yet told the listener's client about a loss.
    func concern(_ listener: UInt32) -> Bool {
        unanswered.contains(listener) || lacking.contains(listener) || skipped.contains(listener)
            || unknownRows[listener] != nil || incompleteRows.contains(listener)
    }

    // MARK: Losses of one listener

    mutating func noteOverfull(_ listener: UInt32) { overfull.append(listener) }
    mutating func noteUnanswered(_ listener: UInt32) { unanswered.insert(listener) }
    mutating func noteLacking(_ listener: UInt32) { lacking.insert(listener) }

    /// Records that the client of a member (binding) may miss a change. For a delete of a table that does not log whole
    /// old rows, records that reason too: the client learned on subscribing that such rows come from the log, where
    /// they may lack values.
    mutating func miss(_ member: Member, _ change: borrowing Change, _ bindings: borrowing PlacedBindings) {
        guard change.operation == .delete, bindings.knowsOfPartialRows(member) else {
            unanswered.insert(member.listener)
            return
        }
        absent.add()
        if change.oldImage == .full {
            incompleteRows.insert(member.listener)
        } else if let table = bindings.table(of: member) {
            unknownRows[member.listener, default: []].insert(table)
        }
    }

    // MARK: Losses of tables

    /// Records an update whose old row is unknown, although the table logs whole old rows. Clients that asked for
    /// departures may miss one.
    mutating func missDeparture(from table: UInt32, at offset: UInt64) { unknownDepartures[table] = offset }

    /// Records losses for the listeners of tables with rows that could not be read from the log.
    mutating func missUnread(
        _ request: RecallRequest, _ answers: [RecallAnswer], _ bindings: borrowing PlacedBindings
    ) {
        var tables: Set<UInt32> = []
        for (row, answer) in zip(request.rows, answers) {
            if case .unread = answer { tables.insert(row.id.table) }
        }
        if tables.isEmpty { return }
        for number in bindings.audience.members.indices {
            guard let member = bindings.audience.members[number], let table = bindings.table(of: member),
                tables.contains(table)
            else { continue }
            unanswered.insert(member.listener)
        }
    }

    private mutating func missUnknownDepartures(_ bindings: borrowing PlacedBindings) {
        for number in bindings.audience.members.indices {
            guard let member = bindings.audience.members[number], let table = bindings.table(of: member),
                let last = unknownDepartures[table]
            else { continue }
            let recipient = bindings.audience.recipients[Int(member.listener)]
            if recipient.wantsMoves, recipient.wants(last, member) { unanswered.insert(member.listener) }
        }
        unknownDepartures = [:]
    }

    /// Removes and returns all losses that were recorded since the last call.
    mutating func take(_ bindings: inout PlacedBindings) -> DeliveryLosses {
        if !unknownDepartures.isEmpty { missUnknownDepartures(bindings) }
        defer { (overfull, unanswered, lacking, unknownRows, incompleteRows) = ([], [], [], [:], []) }
        return DeliveryLosses(
            lacking: lacking.sorted(), overfull: overfull, unanswered: unanswered.sorted(), unknownRows: unknownRows,
            incompleteRows: incompleteRows.sorted(), stopped: bindings.takeStopped().sorted(), skipped: skipped.take())
    }
}

/// Listeners whose changes were skipped, with a counter of the skipped bindings.
struct SkippedListeners {
    private var listeners: Set<UInt32> = []
    let drops: Counter

    init(drops: Counter) { self.drops = drops }

    mutating func add(_ listener: UInt32) { listeners.insert(listener) }

    func contains(_ listener: UInt32) -> Bool { listeners.contains(listener) }

    mutating func take() -> [UInt32] {
        defer { listeners = [] }
        return listeners.sorted()
    }
}
