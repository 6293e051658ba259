import Change

/// Check that an export's transactions are in an order that a hub could have written. Without it, an imported log could
/// show transactions that cannot have happened.
struct ImportOrder {
    /// A transaction whose last part has not been read yet.
    private struct Open {
        /// Description of the transaction; nil if this version of Tidewire cannot read its parts.
        var info: TransactionInfo?
        var nextIndex: UInt64
    }

    private var open: Open?
    private var lastCommit = LSN.zero

    /// Forgets earlier transactions, because LSNs may decrease in a new epoch.
    mutating func beginEpoch() { self = ImportOrder() }

    /// Checks that a part, or a whole transaction, may follow those before it; throws if it may not.
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

    /// Accepts a part that this version of Tidewire cannot read, and counts its changes.
    mutating func takeUnread(changes: UInt32, _ place: EntryPlace) { goOn(after: changes, nil, place) }

    private mutating func goOn(after changes: UInt32, _ info: TransactionInfo?, _ place: EntryPlace) {
        let index = (open?.nextIndex ?? 0) + UInt64(changes)
        open = place.isContinued ? Open(info: info, nextIndex: index) : nil
    }
}
