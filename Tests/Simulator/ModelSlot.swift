import Change
import Ingest
import Replication

/// What may be taken from the history that the hub follows, so that it has to say that something may be missing.
public enum ForcedLoss: Sendable, Equatable, CaseIterable {
    case slotDropped
    case slotInvalidated
    /// Somebody has read from the hub's slot.
    case slotAdvanced
    /// What was written while there was none cannot be decoded.
    case publicationRecreated
    /// Before PostgreSQL 18 the slot cannot go on in what lies there.
    case publicationRecreatedBefore18
    /// The server is a copy whose history nobody can say.
    case databaseRestored
    case otherDatabase
    /// The process ends, and what it followed cannot be read by the next one.
    case lineageDamaged
    /// The process ends, and its log is gone; where clients stood is kept elsewhere.
    case logLost
    /// Its whole directory is.
    case directoryLost

    /// It comes to pass where a process begins.
    var endsProcess: Bool { self == .lineageDamaged || self == .logLost || self == .directoryLost }

    var isOfPublication: Bool { self == .publicationRecreated || self == .publicationRecreatedBefore18 }
}

/// The hub's slot on the model's server, and what that says of itself.
struct ModelSlot {
    static let name = "tidewire"

    private let database: ModelDatabase
    private(set) var system: UInt64 = 77
    private var databaseNumber: UInt32 = 5
    private var timeline: UInt32 = 1
    private var publication = PublishedTables(number: 40, members: [:])
    private var branch = ServerState.Branch.same
    private var isBefore18 = false
    private var slot: ServerState.Slot?
    /// The end of what the hub said that it has, which the server hears a moment later.
    private var reported = LSN.zero

    init(_ database: ModelDatabase) { self.database = database }

    /// What the server was told to forget.
    var confirmed: LSN { slot?.confirmed ?? .zero }

    /// The hub says how far it is: what it said the time before has come there by now.
    mutating func confirm(_ position: LSN) {
        if reported > confirmed { slot?.confirmed = reported }
        reported = position
    }

    // MARK: What happens to it

    mutating func lose(_ loss: ForcedLoss) {
        switch loss {
        case .slotDropped: slot = nil
        case .slotInvalidated: slot?.isInvalid = true
        case .slotAdvanced: advance()
        case .publicationRecreated, .publicationRecreatedBefore18:
            publication.number += 1
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

    /// Behind whatever is committed.
    private var past: LSN { LSN(database.walEnd.rawValue + 8) }

    // MARK: Where the stream begins

    /// As the hub does it before each stream, with the hub's own decision. The gap's end, where there is one.
    mutating func settle(_ sink: LogSink, noting gap: (Gap) -> Void) throws {
        let lineage = Lineage(timeline: timeline, database: databaseNumber, publication: publication)
        let server = ServerState(system: system, lineage, branch, current: database.walEnd, slot: slot)
        let decision = Continuity.decide(LogState(sink, slot: Self.name), server)
        switch decision {
        case .goesOn: break
        case .begins: try sink.begin(systemIdentifier: system, at: confirmed)
        case .needsSlot(_, let reason):
            if sink.isNew, reason == nil { try sink.prepare(for: Self.name) }
            // Whatever was committed before there is a slot it does not tell.
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
