import Change
import Ingest
import Replication

/// Losses in the history that the hub follows. After each loss, the hub must tell clients that changes may be missing.
public enum ForcedLoss: Sendable, Equatable, CaseIterable {
    case slotDropped
    case slotInvalidated
    /// Another client has read from the hub's slot.
    case slotAdvanced
    /// The publication was missing for a while. Changes written meanwhile cannot be decoded.
    case publicationRecreated
    /// The publication was missing for a while. Before PostgreSQL 18, the slot cannot continue past the changes written
    /// meanwhile.
    case publicationRecreatedBefore18
    /// The server was replaced by a copy with unknown history.
    case databaseRestored
    case otherDatabase
    /// The process ends, and the next one cannot read the record of the history that the log followed.
    case lineageDamaged
    /// The process ends and its log is lost. The clients' positions, stored elsewhere, remain.
    case logLost
    /// The process ends and its whole directory is lost.
    case directoryLost

    /// True if the loss takes effect when the next process starts.
    var endsProcess: Bool { self == .lineageDamaged || self == .logLost || self == .directoryLost }

    var isOfPublication: Bool { self == .publicationRecreated || self == .publicationRecreatedBefore18 }
}

/// The hub's replication slot on the model's server, with the server state that the hub reads.
struct ModelSlot {
    static let name = "tidewire"

    private let database: ModelDatabase
    private(set) var system: UInt64 = 77
    private var databaseNumber: UInt32 = 5
    private var timeline: UInt32 = 1
    private var publication: UInt32 = 40
    private var branch = ServerState.Branch.same
    private var isBefore18 = false
    private var slot: ServerState.Slot?
    /// Position that the hub reported last. The server receives it a moment later.
    private var reported = LSN.zero

    init(_ database: ModelDatabase) { self.database = database }

    /// Position up to which the server may forget changes.
    var confirmed: LSN { slot?.confirmed ?? .zero }

    /// Reports the hub's position. By now, the server has received the position reported before.
    mutating func confirm(_ position: LSN) {
        if reported > confirmed { slot?.confirmed = reported }
        reported = position
    }

    // MARK: Losses

    mutating func lose(_ loss: ForcedLoss) {
        switch loss {
        case .slotDropped: slot = nil
        case .slotInvalidated: slot?.isInvalid = true
        case .slotAdvanced: advance()
        case .publicationRecreated, .publicationRecreatedBefore18:
            publication += 1
            isBefore18 = loss == .publicationRecreatedBefore18
        case .databaseRestored:
            timeline += 1
            branch = .unrelated
        case .otherDatabase:
            system += 1
            databaseNumber += 1
        case .lineageDamaged, .logLost, .directoryLost: break
        }
    }

    private mutating func advance() {
        let past = past
        slot?.confirmed = past
    }

    /// Position after all committed changes.
    private var past: LSN { LSN(database.walEnd.rawValue + 8) }

    // MARK: Start of the stream

    /// Prepares the log and the slot before a stream starts, using the hub's own decision. Calls `gap` if history has a
    /// gap.
    mutating func settle(_ sink: LogSink, noting gap: (Gap) -> Void) throws {
        let lineage = Lineage(timeline: timeline, database: databaseNumber, publication: publication)
        let server = ServerState(system: system, lineage, branch, current: database.walEnd, slot: slot)
        let decision = Continuity.decide(LogState(sink, slot: Self.name), server)
        switch decision {
        case .goesOn: break
        case .begins: try sink.begin(systemIdentifier: system, at: confirmed)
        case .needsSlot(_, let reason):
            if sink.isNew, reason == nil { try sink.prepare(for: Self.name) }
            // A new slot does not send the commits before its creation.
            let start = database.walEnd == ModelDatabase.firstLSN ? database.walEnd : past
            slot = ServerState.Slot(confirmed: start, isInvalid: false)
            if let reason {
                try record(reason, to: start, sink, noting: gap)
            } else {
                try sink.begin(systemIdentifier: system, at: start)
            }
        case .broken(let reason):
            try record(reason, to: end(of: reason, sink), sink, noting: gap)
        }
        if sink.lineage != lineage { try sink.follow(lineage) }
        branch = .same
        reported = confirmed
    }

    private mutating func end(of reason: Gap.Reason, _ sink: LogSink) -> LSN {
        guard reason == .publicationRecreated else { return confirmed }
        guard isBefore18 else { return sink.position }
        advance()
        return confirmed
    }

    private func record(_ reason: Gap.Reason, to end: LSN, _ sink: LogSink, noting: (Gap) -> Void) throws {
        let gap = Gap(reason: reason, from: sink.position, to: end)
        noting(gap)
        if sink.isNew {
            try sink.begin(systemIdentifier: system, at: end, after: gap)
        } else {
            try sink.recordGap(gap, systemIdentifier: system)
        }
    }
}
