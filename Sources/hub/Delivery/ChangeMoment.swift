import Change
import EventLog

/// Commit and log position of a change that is being delivered.
struct ChangeMoment {
    let commitTime: Int64
    let commitLSN: LSN
    /// Position of the change in the log.
    let position: EventLogPosition
    /// Number of the change in the order of this loop's deliveries; zero before its delivery begins.
    private(set) var number: UInt64 = 0
    /// True for an update that contains the old row. Some clients may see the new row but not the old one.
    private(set) var hasPast = false

    init(commitTime: Int64, commitLSN: LSN, _ position: EventLogPosition) {
        self.commitTime = commitTime
        self.commitLSN = commitLSN
        self.position = position
    }

    var offset: UInt64 { position.offset }

    /// Position of a client that has received the change: the one after it.
    var behind: EventLogPosition { EventLogPosition(epoch: position.epoch, offset: position.offset + 1) }

    /// Returns the moment with the change's number. `change` may be a completed change.
    func of(_ change: borrowing Change, number: UInt64) -> ChangeMoment {
        var moment = self
        moment.number = number
        moment.hasPast = change.operation == .update && change.oldImage != .none
        return moment
    }
}
