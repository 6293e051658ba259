import Change

/// What the log knows of where it stands.
struct LogState: Equatable {
    var isNew: Bool
    var systemIdentifier: UInt64
    var position: LSN
    var lineage: Lineage?
}

/// What the server says of itself and of our slot.
struct ServerState: Equatable {
    struct Slot: Equatable {
        var confirmed: LSN
        /// The WAL it needs is gone, or the server dropped it for another reason.
        var isInvalid: Bool
    }

    /// How the server's history goes on from the timeline that the log followed.
    enum Branch: Equatable {
        case same
        /// Another timeline began there; what the old one had beyond it does not count any more.
        case left(at: LSN)
        case unrelated
    }

    var systemIdentifier: UInt64
    var database: UInt32 = 0
    var branch: Branch = .same
    /// How far the server's WAL reaches.
    var current: LSN
    var slot: Slot?
}

/// Whether the stream can go on where the log ends; decided before streaming, from what both sides say.
///
/// The rule behind it: between the log's position and the slot's confirmed position nothing may be missing. A slot that
/// stands *before* the log only repeats what the log will recognise; one that stands *after* it has let go of changes
/// that nobody stored.
enum Continuity: Equatable {
    /// Stream on.
    case goesOn
    /// The log is new and begins where the slot stands.
    case begins
    /// There is no usable slot: make one (after dropping what is left of the old one). The reason is nil for a new log.
    case needsSlot(dropFirst: Bool, gap: Gap.Reason?)
    /// The slot is usable, but history does not continue.
    case broken(Gap.Reason)

    static func decide(_ log: LogState, _ server: ServerState) -> Continuity {
        let loss = log.isNew ? nil : lossBeforeSlot(log, server)
        guard let slot = server.slot else {
            return .needsSlot(dropFirst: false, gap: log.isNew ? nil : loss ?? .slotMissing)
        }
        if slot.isInvalid { return .needsSlot(dropFirst: true, gap: log.isNew ? nil : loss ?? .slotInvalidated) }
        if log.isNew { return .begins }
        if let loss { return .broken(loss) }
        return slot.confirmed > log.position ? .broken(.slotAdvanced) : .goesOn
    }

    private static func lossBeforeSlot(_ log: LogState, _ server: ServerState) -> Gap.Reason? {
        if server.systemIdentifier != log.systemIdentifier { return .otherDatabase }
        if let followed = log.lineage?.database, server.database != followed { return .otherDatabase }
        // The server only ever sends WAL it has flushed, so one that ends before our position is an older copy. It may
        // have written more since; then its timeline tells, if a recovery or a promotion began another.
        if server.current < log.position { return .databaseRestored }
        switch server.branch {
        case .same: return nil
        case .left(let fork): return fork < log.position ? .databaseRestored : nil
        case .unrelated: return .databaseRestored
        }
    }
}
