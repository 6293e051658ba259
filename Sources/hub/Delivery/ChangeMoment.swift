import Change
import EventLog

/// Commit and position of the change that is delivered.
struct ChangeMoment {
    let commitTime: Int64
    let commitLSN: LSN
    /// Position of the change in the log.
    let position: EventLogPosition
    /// Number of the change among those that the loop delivers; zero before its delivery begins.
    private(set) var number: UInt64 = 0
    /// True for an update that contains the old row. Not every client that sees the new row may see the old one.
    private(set) var hasPast = false

    init(commitTime: Int64, commitLSN: LSN, _ position: EventLogPosition) {
        self.commitTime = commitTime
        self.commitLSN = commitLSN
        self.position = position
    }

    var offset: UInt64 { position.offset }

    /// Position of a client that has received the change.
    var behind: EventLogPosition { EventLogPosition(epoch: position.epoch, offset: position.offset + 1) }

    /// Returns the moment of a change, or of its completion, with its number.
    func of(_ change: borrowing Change, number: UInt64) -> ChangeMoment {
        var moment = self
        moment.number = number
        moment.hasPast = change.operation == .update && change.oldImage != .none
        return moment
    }
}
