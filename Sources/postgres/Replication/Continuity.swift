import Change

/// State of the log before a stream begins.
public struct LogState: Sendable, Equatable {
    var isNew: Bool
    var systemIdentifier: UInt64
    var position: LSN
    var lineage: Lineage?
    /// True if the stored lineage cannot be read.
    var isLineageDamaged = false
    /// True for a new log that is to begin with this slot, which did not exist before.
    var isBeginning = false
}

extension LogState {
    /// Creates the state from the sink, before a stream from that slot begins.
    public init(_ sink: some TransactionSink, slot: String) {
        self.init(
            isNew: sink.isNew, systemIdentifier: sink.systemIdentifier, position: sink.position, lineage: sink.lineage,
            isLineageDamaged: sink.isLineageDamaged, isBeginning: sink.isBeginning(with: slot))
    }
}

/// State of the server and of the hub's slot.
public struct ServerState: Sendable, Equatable {
    public struct Slot: Sendable, Equatable {
        public var confirmed: LSN
        /// True if the WAL that the slot needs is gone, or the server invalidated the slot for another reason.
        public var isInvalid: Bool
        /// Server process that streams from the slot, and moves it.
        public var user: Int?

        public init(confirmed: LSN, isInvalid: Bool, user: Int? = nil) {
            self.confirmed = confirmed
            self.isInvalid = isInvalid
            self.user = user
        }
    }

    /// Relation of the server's history to the timeline that the log followed.
    public enum Branch: Sendable, Equatable {
        case same
        /// Another timeline began at this position; the old timeline's WAL after it no longer counts.
        case left(at: LSN)
        case unrelated
    }

    var systemIdentifier: UInt64
    var database: UInt32 = 0
    var branch: Branch = .same
    /// End of the server's WAL.
    var current: LSN
    var slot: Slot?
    var publication: UInt32?
}

extension ServerState {
    /// Creates the state. `lineage` is the one that the log would follow from here on.
    public init(system: UInt64, _ lineage: Lineage, _ branch: Branch, current: LSN, slot: Slot?) {
        self.init(
            systemIdentifier: system, database: lineage.database, branch: branch, current: current, slot: slot,
            publication: lineage.publication)
    }
}

/// Decision, before streaming, whether the stream can continue where the log ends.
///
/// Rule: no change may be missing between the log's position and the slot's confirmed position. A slot *before* the
/// log's position only repeats changes, which the log recognizes. A slot *after* it has discarded changes that no log
/// stored.
public enum Continuity: Sendable, Equatable {
    /// The stream continues.
    case goesOn
    /// The log is new and begins at the position of the slot, which was created for it.
    case begins
    /// No usable slot exists: create one (after dropping the rest of the old one). The reason is nil for a new log.
    case needsSlot(dropFirst: Bool, gap: Gap.Reason?)
    /// The slot is usable, but history does not continue.
    case broken(Gap.Reason)

    public static func decide(_ log: LogState, _ server: ServerState) -> Continuity {
        if log.isNew { return beginning(log, server) }
        let loss = lossBeforeSlot(log, server)
        guard let slot = server.slot else { return .needsSlot(dropFirst: false, gap: loss ?? .slotMissing) }
        if slot.isInvalid { return .needsSlot(dropFirst: true, gap: loss ?? .slotInvalidated) }
        if let loss { return .broken(loss) }
        if slot.confirmed > log.position { return .broken(.slotAdvanced) }
        return lossInPublication(log, server).map { .broken($0) } ?? .goesOn
    }

    /// Decides for a new log. A slot that existed before its log was made for another log, and has discarded changes
    /// which that log confirmed. The same holds if a file beside the log shows that there was another log.
    private static func beginning(_ log: LogState, _ server: ServerState) -> Continuity {
        let wasThere = log.lineage != nil || log.isLineageDamaged
        guard let slot = server.slot else { return .needsSlot(dropFirst: false, gap: wasThere ? .logMissing : nil) }
        let isOurs = log.isBeginning && !wasThere
        if slot.isInvalid { return .needsSlot(dropFirst: true, gap: isOurs ? nil : .logMissing) }
        return isOurs ? .begins : .broken(.logMissing)
    }

    /// Returns the loss if the publication was created again. Changes committed before that are never decoded, even if
    /// the time without it was short.
    private static func lossInPublication(_ log: LogState, _ server: ServerState) -> Gap.Reason? {
        guard let before = log.lineage?.publication, let now = server.publication else { return nil }
        return before == now ? nil : .publicationRecreated
    }

    private static func lossBeforeSlot(_ log: LogState, _ server: ServerState) -> Gap.Reason? {
        if server.systemIdentifier != log.systemIdentifier { return .otherDatabase }
        if let followed = log.lineage?.database, server.database != followed { return .otherDatabase }
        // The server sends only flushed WAL, so a server whose WAL ends before the log's position is an older copy. The
        // server may have written more WAL since. In that case, the timeline shows a recovery or promotion.
        if server.current < log.position { return .databaseRestored }
        switch server.branch {
        case .same: return log.isLineageDamaged ? .lineageDamaged : nil
        case .left(let fork): return fork < log.position ? .databaseRestored : nil
        case .unrelated: return .databaseRestored
        }
    }
}
