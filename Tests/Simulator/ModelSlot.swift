import Change
import Ingest
import Replication

/// Losses from the history that the hub follows. After each, the hub must report that changes may be missing.
public enum ForcedLoss: Sendable, Equatable, CaseIterable {
    case slotDropped
    case slotInvalidated
    /// Another client has read from the hub's slot.
    case slotAdvanced
    /// Changes written without a publication cannot be decoded.
    case publicationRecreated
    /// Changes through which the slot cannot continue before PostgreSQL 18.
    case publicationRecreatedBefore18
    /// The server is a copy of unknown history.
    case databaseRestored
    case otherDatabase
    /// The process ends, and the next process cannot read the lineage that it followed.
    case lineageDamaged
    /// The process ends, and its log is gone; the clients' positions are stored elsewhere.
    case logLost
    /// The process ends, and its whole directory is gone.
    case directoryLost

    /// True if the loss happens when a process begins.
    var endsProcess: Bool { self == .lineageDamaged || self == .logLost || self == .directoryLost }

    var isOfPublication: Bool { self == .publicationRecreated || self == .publicationRecreatedBefore18 }
}

/// Hub's slot on the model's server, with the state that the server reports.
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
    /// Position that the hub reported last, which the server hears a moment later.
    private var reported = LSN.zero

    init(_ database: ModelDatabase) { self.database = database }

    /// Position up to which the server may forget changes.
    var confirmed: LSN { slot?.confirmed ?? .zero }

    /// Reports the hub's position. The previously reported position has reached the server by now.
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

    /// Position after everything that is committed.
    private var past: LSN { LSN(database.walEnd.rawValue + 8) }

    // MARK: Start of the stream

    /// Settles the log and the slot before a stream, by the hub's own decision. Calls `gap` if history has a gap.
    mutating func settle(_ sink: LogSink, noting gap: (Gap) -> Void) throws {
        let lineage = Lineage(timeline: timeline, database: databaseNumber, publication: publication)
        let server = ServerState(system: system, lineage, branch, current: database.walEnd, slot: slot)
        let decision = Continuity.decide(LogState(sink, slot: Self.name), server)
        switch decision {
        case .goesOn: break
        case .begins: try sink.begin(systemIdentifier: system, at: confirmed)
        case .needsSlot(_, let reason):
            if sink.isNew, reason == nil { try sink.prepare(for: Self.name) }
            // A new slot does not send earlier commits.
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
