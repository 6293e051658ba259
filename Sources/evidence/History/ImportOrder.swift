import Change

/// What holds between the transactions of any log that a hub wrote, held against those of an export: nothing else may
/// become a log, or it would tell of transactions that cannot have been.
struct ImportOrder {
    /// A transaction of which the last part is still to come.
    private struct Open {
        /// Nil where its parts cannot be read by this version.
        var info: TransactionInfo?
        var nextIndex: UInt64
    }

    private var open: Open?
    private var lastCommit = LSN.zero

    /// The WAL may go back.
    mutating func beginEpoch() { self = ImportOrder() }

    /// One part, or a whole transaction.
    mutating func take(
        _ info: TransactionInfo, firstIndex: UInt32, changes: UInt32, _ place: EntryPlace
    ) throws(Refused) {
        guard UInt64(firstIndex) == open?.nextIndex ?? 0 else {
            throw Refused("first_index is \(firstIndex) where \(open?.nextIndex ?? 0) changes came before")
        }
        if let first = open?.info {
            guard first.xid == info.xid, first.commitLSN == info.commitLSN, first.commitTime == info.commitTime else {
                throw Refused("a part of another transaction than the one that goes on here")
            }
        } else {
            guard info.commitLSN >= lastCommit else {
                throw Refused("a commit_lsn before that of the transaction before")
            }
        }
        if !place.isContinued {
            guard info.endLSN >= info.commitLSN, info.endLSN == place.lsn else {
                throw Refused("an end_lsn that is not where the transaction takes the log to")
            }
            lastCommit = info.commitLSN
        }
        goOn(after: changes, info, place)
    }

    /// A part that this version cannot read.
    mutating func takeUnread(changes: UInt32, _ place: EntryPlace) { goOn(after: changes, nil, place) }

    private mutating func goOn(after changes: UInt32, _ info: TransactionInfo?, _ place: EntryPlace) {
        let index = (open?.nextIndex ?? 0) + UInt64(changes)
        open = place.isContinued ? Open(info: info, nextIndex: index) : nil
    }
}
