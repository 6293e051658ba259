import Change

/// State of the log before a stream begins.
public struct LogState: Sendable, Equatable {
    var isNew: Bool
    var systemIdentifier: UInt64
    var position: LSN
    var lineage: Lineage?
    /// True if the stored lineage (the history that the log follows) cannot be read.
    var isLineageDamaged = false
    /// True if a new log is about to begin with this slot, which did not exist before.
    var isBeginning = false
}

extension LogState {
    /// Creates the state from the sink, before a stream begins from this slot.
    public init(_ sink: some TransactionSink, slot: String) {
        self.init(
            isNew: sink.isNew, systemIdentifier: sink.systemIdentifier, position: sink.position, lineage: sink.lineage,
            isLineageDamaged: sink.isLineageDamaged, isBeginning: sink.isBeginning(with: slot))
    }
}

/// State of the server and of the hub's slot, before a stream begins.
public struct ServerState: Sendable, Equatable {
    public struct Slot: Sendable, Equatable {
        public var confirmed: LSN
        /// True if the WAL that the slot needs has been removed, or the server invalidated the slot for another reason.
        public var isInvalid: Bool
        /// Process id of the server process that streams from the slot and advances it; nil if there is none.
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
        /// Another timeline began at this position. WAL of the old timeline after the position is not part of the
        /// server's history.
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
    /// Creates the state. `lineage` is the history that the log would follow from now on.
    public init(system: UInt64, _ lineage: Lineage, _ branch: Branch, current: LSN, slot: Slot?) {
        self.init(
            systemIdentifier: system, database: lineage.database, branch: branch, current: current, slot: slot,
            publication: lineage.publication)
    }
}

/// Decision whether a stream can continue at the end of the log.
///
/// No change may be missing between the log's position and the slot's confirmed position. If the slot is *before* the
/// log's position, the stream only repeats changes, which the log recognizes. If the slot is *after* it, the server has
/// discarded changes that no log has stored.
public enum Continuity: Sendable, Equatable {
    /// The stream continues at the end of the log.
    case goesOn
    /// The log is new and begins at the position of the slot, which was created for this log.
    case begins
    /// No usable slot exists, so the hub creates one, after dropping an unusable one if `dropFirst` is true. `gap` is
    /// the reason for the lost changes; nil for a new log.
    case needsSlot(dropFirst: Bool, gap: Gap.Reason?)
    /// The slot is usable, but changes are missing, for this reason.
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

    /// Decides for a new log. A slot that existed before belonged to another log, which has confirmed changes that are
    /// now discarded. The same applies if a file beside the log shows that there was another log.
    private static func beginning(_ log: LogState, _ server: ServerState) -> Continuity {
        let wasThere = log.lineage != nil || log.isLineageDamaged
        guard let slot = server.slot else { return .needsSlot(dropFirst: false, gap: wasThere ? .logMissing : nil) }
        let isOurs = log.isBeginning && !wasThere
        if slot.isInvalid { return .needsSlot(dropFirst: true, gap: isOurs ? nil : .logMissing) }
        return isOurs ? .begins : .broken(.logMissing)
    }

    /// Returns the reason for lost changes if the publication was dropped and created again. Changes committed before
    /// its creation are never decoded, even if the time without a publication was short.
    private static func lossInPublication(_ log: LogState, _ server: ServerState) -> Gap.Reason? {
        guard let before = log.lineage?.publication, let now = server.publication else { return nil }
        return before == now ? nil : .publicationRecreated
    }

    private static func lossBeforeSlot(_ log: LogState, _ server: ServerState) -> Gap.Reason? {
        if server.systemIdentifier != log.systemIdentifier { return .otherDatabase }
        if let followed = log.lineage?.database, server.database != followed { return .otherDatabase }
        // The server sends only flushed WAL. So if its WAL ends before the log's position, the server is an older copy.
        // The copy may have written more WAL in the meantime; then its timeline shows the recovery or promotion.
        if server.current < log.position { return .databaseRestored }
        switch server.branch {
        case .same: return log.isLineageDamaged ? .lineageDamaged : nil
        case .left(let fork): return fork < log.position ? .databaseRestored : nil
        case .unrelated: return .databaseRestored
        }
    }
}
