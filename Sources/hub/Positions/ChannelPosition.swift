import Catalog
import EventLog
import Protocol

/// Pure machine for where a channel stands in the event log: which reader serves it, from which offset its changes
/// begin, what was sent to its client, and what its client is owed. Events go in, actions come out.
///
/// A channel waits, catches up behind the log's end, or is live. While something holds it, its changes stay in the log.
/// No question changes the state.
public struct ChannelPosition: Sendable {
    /// Reader that serves the channel.
    public enum Stage: Equatable, Sendable {
        /// The join has not come to the bindings yet.
        case joining
        /// The channel waits without a reader. A catch-up begins when nothing holds the channel any more.
        case waiting
        /// A reader behind the log's end serves the channel.
        case catchingUp
        /// The reader at the log's end serves the channel.
        case live
        case ended
    }

    /// Changes before the join that the client is to receive.
    public enum Resumption: Equatable, Sendable {
        /// The client asked for nothing from before its join.
        case none
        /// The client is to receive everything since this position, if the log has it. That is not known yet.
        case asked(EventLogPosition)
        /// The hub has sent the changes since this position, or will send them.
        case from(EventLogPosition)
        case refused(LogStanding.Refusal)
    }

    /// Reasons why no reader may serve the channel.
    public struct Holds: OptionSet, Sendable {
        public let rawValue: UInt8

        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// The socket takes no more data.
        public static let socket = Holds(rawValue: 1)
        /// PostgreSQL does not show a commit yet that the log has.
        public static let commit = Holds(rawValue: 2)
        /// The client receives the rows that exist.
        public static let snapshot = Holds(rawValue: 4)
    }

    /// Progress of the rows that the client receives before changes.
    public enum Snapshot: Sendable { case none, wanted, running }

    /// Choices of the join that decide about the position.
    public struct Wishes: Sendable {
        /// True if the channel is the answer to a request for changes.
        public var isFeed: Bool
        /// True if the client wants the existing rows before changes.
        public var wantsRows: Bool
        /// True if these rows are all that the client can have missed. A private channel may have missed messages.
        public var rowsAreEverything: Bool

        public init(isFeed: Bool, wantsRows: Bool, rowsAreEverything: Bool) {
            self.isFeed = isFeed
            self.wantsRows = wantsRows
            self.rowsAreEverything = rowsAreEverything
        }
    }

    let wishes: Wishes
    public internal(set) var stage = Stage.joining
    public internal(set) var resumption = Resumption.none
    public internal(set) var holds: Holds = []
    public internal(set) var snapshot: Snapshot
    var isAnswered = false
    var isOpen = false
    /// True if the hub resumes the channel by itself, because it has recognised the client.
    public internal(set) var isReturning = false

    /// Offset at which the channel's changes begin; nil until that is decided, at the latest when a reader knows the
    /// channel.
    public internal(set) var since: UInt64?
    /// Offset last sent to the client by an earlier reader, or with a snapshot. The next reader takes it over.
    public internal(set) var toldAt: UInt64?
    /// Transactions that a sent snapshot includes, and the offset from which changes may be missing in it. Nil and 0
    /// once the log has passed all of them.
    public internal(set) var seen: SeenTransactions?
    public internal(set) var floor: UInt64 = 0
    /// Offset before which messages of the database are past for the channel: they were replayed, or were not asked for.
    public internal(set) var messagesSince: UInt64 = 0
    /// Offset last sent to the client by a marker, or by a change before a marker was due.
    public internal(set) var markedAt: UInt64 = 0
    /// Offset up to which everything was sent when the socket stopped taking data; nil until then.
    var sentAtEnd: UInt64?

    /// Loss to report when the bindings are in place. The loss may grow until then.
    public internal(set) var owedLoss: LossReason?
    /// Losses to report to a client that knows of its channel.
    public internal(set) var lossReport = PacedReport<LossReason>()
    /// True if the snapshot failed for a passing reason, so that a new join may receive it.
    var lacksSnapshot = false
    /// Acknowledged offset of the channel; nil if the hub could not recognise the client when it returns.
    public internal(set) var receipt: ChannelReceipt?

    public init(_ wishes: Wishes) {
        self.wishes = wishes
        snapshot = wishes.wantsRows ? .wanted : .none
    }
}

// MARK: - Questions

extension ChannelPosition {
    /// True if a reader serves the channel.
    public var isServed: Bool { stage == .catchingUp || stage == .live }

    /// True if the client is to receive changes from before its join.
    public var isResumed: Bool {
        switch resumption {
        case .asked, .from: true
        case .none, .refused: false
        }
    }

    /// Offset from which the client asked to resume, or was resumed.
    public var resumedFrom: UInt64? {
        switch resumption {
        case .asked(let position), .from(let position): position.offset
        case .none, .refused: nil
        }
    }

    /// True if it is not known yet whether the log has the position that the client asked for.
    public var isUndecided: Bool { if case .asked = resumption { true } else { false } }

    /// True if the channel misses nothing by joining late, because it begins with everything that exists.
    public var beginsWithEverything: Bool { wishes.rowsAreEverything }

    /// True if rows of a snapshot are still to be sent. A client has no position among its rows.
    public var awaitsRows: Bool { snapshot != .none }

    /// Position from which a waiting channel goes on; nil if the channel does not wait, or goes on at the log's end, or
    /// if that is not decided yet.
    public var parkedAt: EventLogPosition? {
        guard stage == .waiting, case .from(let position) = resumption else { return nil }
        return position
    }

    /// Offset from which a reader sends changes to the channel. `end` is the end of the log.
    public func start(end: UInt64) -> UInt64 { max(since ?? end, floor) }

    /// True if a loss was not reported yet, or if the client is not known to have received its report.
    public var owesLoss: Bool { owesReport || receipt.map { !$0.isFreeOfLoss } ?? false }

    /// True if the client must be told something that it was not told yet.
    public var owesReport: Bool {
        lossReport.untold != nil || owedLoss != nil || awaitsRows || lacksSnapshot || seen != nil
    }

    /// Returns the epoch of what the channel last received. The log's end may be in another epoch, behind a gap.
    public func epoch(_ view: LogView) -> UInt64? {
        if let parkedAt { return parkedAt.epoch }
        // The reader has read nothing for the channel yet: a gap behind its position is still to be told.
        if stage == .catchingUp, case .from(let position) = resumption, let reader = view.reader,
            reader.epoch == nil || reader.frontier < position.offset
        {
            return position.epoch
        }
        return view.epoch
    }

    /// Returns the position from which the channel would resume now; nil while the log has not begun.
    public func position(_ view: LogView) -> EventLogPosition? {
        epoch(view).map { EventLogPosition(epoch: $0, offset: max(since ?? 0, view.reader?.frontier ?? 0)) }
    }

    /// Returns the position and the result of the resume for the join's reply.
    public func standing(_ view: LogView) -> LogStanding {
        guard let epoch = epoch(view) else { return LogStanding(position: nil, recovery: nil) }
        let recovery: Result<Void, LogStanding.Refusal>? =
            switch resumption {
            case .none, .asked: nil
            case .from: .success(())
            case .refused(let refusal): .failure(refusal)
            }
        let position = EventLogPosition(epoch: epoch, offset: since ?? view.liveFrontier)
        return LogStanding(position: "\(position)", recovery: recovery)
    }

    /// Returns the extent of what the client was sent by now; nil while something is on its way to it.
    public func reach(_ view: LogView) -> ChannelReceipt.Reach? {
        guard isOpen else { return nil }
        // A parked channel was sent everything before its position.
        guard let reader = view.reader else { return since.map { .offset($0) } }
        let begins = since ?? 0
        if reader.isHeld { return reader.firstHeld.map { .offset(max(begins, $0)) } }
        // A reader that lags may still read entries from before the channel's join.
        return reader.isLive && reader.frontier >= begins ? .socket : .offset(max(begins, reader.frontier))
    }

    /// Returns the offset up to which everything was sent to the client; nil if nothing was sent yet. `acknowledged` is
    /// the offset that the client has acknowledged.
    public func sent(_ view: LogView, acknowledged: UInt64?) -> UInt64? {
        if let sentAtEnd { return sentAtEnd }
        guard isOpen else { return resumedFrom }
        switch reach(view) {
        case .offset(let offset): return offset
        case .socket: return view.reader?.frontier ?? view.liveFrontier
        case nil: return acknowledged.map { max($0, since ?? 0) }
        }
    }

    /// True unless something before the offset is still to be sent, as far as that is known.
    public func wasSent(upTo offset: UInt64?, _ view: LogView) -> Bool {
        guard receipt != nil, let offset, case .offset(let sent) = reach(view) else { return true }
        return offset <= sent
    }

    /// Returns the offset that the log must keep for the channel; nil for a channel at the log's end.
    public func needed(_ view: LogView) -> UInt64? {
        if let parkedAt { return parkedAt.offset }
        guard let reader = view.reader, !reader.isLive else { return nil }
        return max(reader.frontier, since ?? 0)
    }

    /// Returns the position to keep for the return of a client whose channel ends; nil if it needs none.
    public func kept(_ view: LogView, acknowledged: UInt64?) -> EventLogPosition? {
        if isOpen { return acknowledged.map { last($0, view) } }
        // A join that was not opened still has the position from which it was to resume, or a refusal not told yet.
        let unopened = receipt?.own ?? resumedFrom ?? (isReturning ? view.liveFrontier : nil)
        guard let unopened else { return nil }
        if case .asked(let position) = resumption { return EventLogPosition(epoch: position.epoch, offset: unopened) }
        return last(unopened, view)
    }

    /// Returns what a client that joins again on its socket was sent, and what it has acknowledged of that; nil if it was
    /// sent nothing yet. Whatever was sent on the socket arrives before anything that is sent now.
    public func left(
        _ view: LogView, acknowledged: UInt64?
    ) -> (sent: EventLogPosition, got: EventLogPosition)? {
        sent(view, acknowledged: acknowledged).map {
            (last($0, view), last(min(acknowledged ?? $0, $0), view))
        }
    }

    /// Returns the offset as a position at the channel's end. A channel joined before the log had begun gets a position
    /// outside every log, so that its client is told to fetch.
    private func last(_ offset: UInt64, _ view: LogView) -> EventLogPosition {
        epoch(view).map { EventLogPosition(epoch: $0, offset: offset) } ?? EventLogPosition(epoch: 0, offset: 0)
    }
}
