import Change

/// What the log knows of where it stands.
public struct LogState: Sendable, Equatable {
    var isNew: Bool
    var systemIdentifier: UInt64
    var position: LSN
    var lineage: Lineage?
    /// What was noted of where it comes from cannot be read.
    var isLineageDamaged = false
    /// Of a new log: it is to begin with this slot, which was not there before.
    var isBeginning = false
}

extension LogState {
    /// As its sink says, before a stream from that slot begins.
    public init(_ sink: some TransactionSink, slot: String) {
        self.init(
            isNew: sink.isNew, systemIdentifier: sink.systemIdentifier, position: sink.position, lineage: sink.lineage,
            isLineageDamaged: sink.isLineageDamaged, isBeginning: sink.isBeginning(with: slot))
    }
}

/// What the server says of itself and of our slot.
public struct ServerState: Sendable, Equatable {
    public struct Slot: Sendable, Equatable {
        public var confirmed: LSN
        /// The WAL it needs is gone, or the server dropped it for another reason.
        public var isInvalid: Bool
        /// A server process that streams from it, and moves it.
        public var user: Int?

        public init(confirmed: LSN, isInvalid: Bool, user: Int? = nil) {
            self.confirmed = confirmed
            self.isInvalid = isInvalid
            self.user = user
        }
    }

    /// How the server's history goes on from the timeline that the log followed.
    public enum Branch: Sendable, Equatable {
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
    var publication: PublishedTables?
}

extension ServerState {
    /// The lineage is what the log would follow from here on.
    public init(system: UInt64, _ lineage: Lineage, _ branch: Branch, current: LSN, slot: Slot?) {
        self.init(
            systemIdentifier: system, database: lineage.database, branch: branch, current: current, slot: slot,
            publication: lineage.publication)
    }
}

/// Whether the stream can go on where the log ends; decided before streaming, from what both sides say.
///
/// The rule behind it: between the log's position and the slot's confirmed position nothing may be missing. A slot that
/// stands *before* the log only repeats what the log will recognise; one that stands *after* it has let go of changes
/// that nobody stored.
public enum Continuity: Sendable, Equatable {
    /// Stream on.
    case goesOn
    /// The log is new and begins where the slot stands, which was made for it.
    case begins
    /// There is no usable slot: make one (after dropping what is left of the old one). The reason is nil for a new log.
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

    /// A slot that was there before its log was made for another one, and let go of what that one had confirmed. So it is
    /// where something beside the log says that there was one.
    private static func beginning(_ log: LogState, _ server: ServerState) -> Continuity {
        let wasThere = log.lineage != nil || log.isLineageDamaged
        guard let slot = server.slot else { return .needsSlot(dropFirst: false, gap: wasThere ? .logMissing : nil) }
        let isOurs = log.isBeginning && !wasThere
        if slot.isInvalid { return .needsSlot(dropFirst: true, gap: isOurs ? nil : .logMissing) }
        return isOurs ? .begins : .broken(.logMissing)
    }

    /// What is committed while a table is not published is not decoded, also where that was for a moment only.
    private static func lossInPublication(_ log: LogState, _ server: ServerState) -> Gap.Reason? {
        guard let before = log.lineage?.publication, let now = server.publication else { return nil }
        return before.breach(by: now)
    }

    private static func lossBeforeSlot(_ log: LogState, _ server: ServerState) -> Gap.Reason? {
        if server.systemIdentifier != log.systemIdentifier { return .otherDatabase }
        if let followed = log.lineage?.database, server.database != followed { return .otherDatabase }
        // The server only ever sends WAL it has flushed, so one that ends before our position is an older copy. It may
        // have written more since; then its timeline tells, if a recovery or a promotion began another.
        if server.current < log.position { return .databaseRestored }
        switch server.branch {
        case .same: return log.isLineageDamaged ? .lineageDamaged : nil
        case .left(let fork): return fork < log.position ? .databaseRestored : nil
        case .unrelated: return .databaseRestored
        }
    }
}
