import Bytes
import Change
import Diagnostics

/// Losses of a router since the loop last told clients of losses.
struct OpenLosses {
    /// Channels with too many waiting deliveries, which the hub closes.
    private var overfull: [UInt32] = []
    /// Channels that miss something because a question was not answered or could not be asked. The hub tells them.
    private var unanswered: Set<UInt32> = []
    /// Channels that got an update without its unchanged values, because the log does not have those. The hub tells
    /// them.
    private var lacking: Set<UInt32> = []
    /// Tables from whose views unknown rows may have gone, with the offset of the last such change.
    private var unknownDepartures: [UInt32: UInt64] = [:]
    /// Channels that were left out because trying some filter would have taken more work than the allowance.
    var skipped: SkippedListeners
    /// Tables whose deletes were not judged for a channel, because their rows are not known.
    private var unknownRows: [UInt32: Set<UInt32>] = [:]
    /// Channels that miss a delete because the log has the row without a value that their filter or policy reads.
    private var incompleteRows: Set<UInt32> = []
    /// Counts changes that could not be judged for want of a value.
    private let absent: Counter

    init(_ drops: CounterFamily<ProjectMetrics.DropReason>) {
        skipped = SkippedListeners(drops: drops[.tooMuchWork])
        absent = drops[.absentValue]
    }

    /// True if the listener is still to be told of a loss.
    func concern(_ listener: UInt32) -> Bool {
        unanswered.contains(listener) || lacking.contains(listener) || skipped.contains(listener)
            || unknownRows[listener] != nil || incompleteRows.contains(listener)
    }

    // MARK: Losses of one listener

    mutating func noteOverfull(_ listener: UInt32) { overfull.append(listener) }
    mutating func noteUnanswered(_ listener: UInt32) { unanswered.insert(listener) }
    mutating func noteLacking(_ listener: UInt32) { lacking.insert(listener) }

    /// Notes that the member may miss a change. If a table's deletes do not contain the row, the client knows from its
    /// subscription that the log must have the row, but not that the row may lack a value there.
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

    /// Notes that an old row is unknown, although the table keeps whole old rows. Clients that asked for moves may miss
    /// one.
    mutating func missDeparture(from table: UInt32, at offset: UInt64) { unknownDepartures[table] = offset }

    /// Notes for the listeners of tables whose rows the log did not give that changes of these rows may be missing.
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
            if recipient.wantsMoves, recipient.since <= last { unanswered.insert(member.listener) }
        }
        unknownDepartures = [:]
    }

    /// Returns the losses and forgets them.
    mutating func take(_ bindings: inout PlacedBindings) -> DeliveryLosses {
        if !unknownDepartures.isEmpty { missUnknownDepartures(bindings) }
        defer { (overfull, unanswered, lacking, unknownRows, incompleteRows) = ([], [], [], [:], []) }
        return DeliveryLosses(
            lacking: lacking.sorted(), overfull: overfull, unanswered: unanswered.sorted(), unknownRows: unknownRows,
            incompleteRows: incompleteRows.sorted(), stopped: bindings.takeStopped().sorted(), skipped: skipped.take())
    }
}

/// Listeners that were left out of changes, with a counter of their bindings.
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
