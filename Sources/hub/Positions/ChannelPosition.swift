import Catalog
import EventLog
import Protocol

/// State machine for where a channel stands in the event log: which reader serves it, at which offset its changes
/// begin, what the hub has sent to its client, and which losses the client must still be told. Events go in, actions
/// come out.
///
/// A channel waits, catches up behind the log's end, or is live. While something holds it, its changes stay in the log.
/// Queries do not change the state.
public struct ChannelPosition: Sendable {
    /// Stage of the channel, by the reader that serves it.
    public enum Stage: Equatable, Sendable {
        /// The channel is being joined, and its bindings cannot be placed yet.
        case joining
        /// No reader serves the channel. A catch-up begins when nothing holds it any more.
        case waiting
        /// A catch-up reader, behind the log's end, serves the channel.
        case catchingUp
        /// The live reader, at the log's end, serves the channel.
        case live
        case ended
    }

    /// Changes from before the join that the client receives.
    public enum Resumption: Equatable, Sendable {
        /// The client receives nothing from before its join.
        case none
        /// The channel is to receive everything after this position. The hub does not know yet if the log has it.
        case asked(EventLogPosition)
        /// The hub sends the changes from this position on, or has sent them.
        case from(EventLogPosition)
        /// The hub cannot send the changes that the client asked for.
        case refused(LogStanding.Refusal)
    }

    /// Reasons why no reader may serve the channel now.
    public struct Holds: OptionSet, Sendable {
        public let rawValue: UInt8

        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// The socket of the channel takes no more data for now.
        public static let socket = Holds(rawValue: 1)
        /// PostgreSQL does not show a commit yet that the log has.
        public static let commit = Holds(rawValue: 2)
        /// The hub is sending the existing rows to the client.
        public static let snapshot = Holds(rawValue: 4)
    }

    /// Progress of the snapshot: the existing rows that the client receives before changes.
    public enum Snapshot: Sendable { case none, wanted, running }

    /// Properties of the join that decide where the channel stands.
    public struct Wishes: Sendable {
        /// True if the channel serves an HTTP request for changes.
        public var isFeed: Bool
        /// True if the client wants the existing rows before changes.
        public var wantsRows: Bool
        /// True if the client wants them for all its bindings.
        public var wantsRowsOfAll: Bool
        /// True if the existing rows contain all that the client can have missed. False for a private channel, which
        /// may also have missed messages, and if some binding does not begin with rows.
        public var rowsAreEverything: Bool

        public init(isFeed: Bool, wantsRows: Bool, wantsRowsOfAll: Bool, rowsAreEverything: Bool) {
            self.isFeed = isFeed
            self.wantsRows = wantsRows
            self.wantsRowsOfAll = wantsRowsOfAll
            self.rowsAreEverything = rowsAreEverything
        }
    }

    let wishes: Wishes
    public internal(set) var stage = Stage.joining
    public internal(set) var resumption = Resumption.none
    public internal(set) var holds: Holds = []
    public internal(set) var snapshot: Snapshot
    /// True if the hub has decided on the join's reply.
    var isAnswered = false
    /// True if the hub has sent the join's reply, which opens the channel.
    var isOpen = false
    /// True if the hub resumes the channel because it has recognised the client, which did not ask for it.
    public internal(set) var isReturning = false

    /// Offset in the log at which the channel's changes begin; nil until it is decided.
    public internal(set) var since: UInt64?
    /// Offset that an earlier reader or a snapshot last sent to the client as its position. The next reader continues
    /// from it.
    public internal(set) var toldAt: UInt64?
    /// Transactions that a sent snapshot contains; nil once the log has passed all of them.
    public internal(set) var seen: SeenTransactions?
    /// Offset from which the snapshot may lack changes; 0 once the log has passed all transactions in it. It applies to
    /// the bindings that begin with rows.
    public internal(set) var floor: UInt64 = 0
    /// Offset before which the channel needs no database messages: the hub has sent them, or the client did not ask for
    /// them.
    public internal(set) var messagesSince: UInt64 = 0
    /// Offset that the hub last sent to the client, in a position message or in a change instead of one.
    public internal(set) var markedAt: UInt64 = 0
    /// Offset before which the hub had sent everything when the channel's socket stopped taking data; nil while it
    /// takes data.
    var sentAtEnd: UInt64?

    /// Loss that the hub reports when the bindings are in place; nil if there is none. A later reason replaces it.
    public internal(set) var owedLoss: LossReason?
    /// Loss reports to the client, which are sent only after the join has been answered.
    public internal(set) var lossReport = PacedReport<LossReason>()
    /// True if the snapshot failed for a temporary reason, so that the client may get it if it joins again.
    var lacksSnapshot = false
    /// Acknowledged offset of the channel; nil if the hub could not recognise its client on return.
    public internal(set) var receipt: ChannelReceipt?

    public init(_ wishes: Wishes) {
        self.wishes = wishes
        snapshot = wishes.wantsRows ? .wanted : .none
    }
}

// MARK: - Questions

extension ChannelPosition {
    /// True if a reader of the log serves the channel.
    public var isServed: Bool { stage == .catchingUp || stage == .live }

    /// True if the client receives changes from before its join, or the hub has not decided that yet.
    public var isResumed: Bool {
        switch resumption {
        case .asked, .from: true
        case .none, .refused: false
        }
    }

    /// Offset from which the client asked to resume, or from which the hub resumed it; nil if the client begins at its
    /// join.
    public var resumedFrom: UInt64? {
        switch resumption {
        case .asked(let position), .from(let position): position.offset
        case .none, .refused: nil
        }
    }

    /// Position from which the channel is to resume, while the hub does not know whether the log has it.
    public var asked: EventLogPosition? { if case .asked(let position) = resumption { position } else { nil } }

    /// True if the hub does not know yet whether the log has the position from which the channel is to resume.
    public var isUndecided: Bool { asked != nil }

    /// True if the channel begins with all rows that exist and no message matters to it, so that it cannot miss
    /// anything by joining late.
    public var beginsWithEverything: Bool { wishes.rowsAreEverything }

    /// True if the hub must still send rows of a snapshot. A client has no log position while it receives these.
    public var awaitsRows: Bool { snapshot != .none }

    /// Position from which a waiting channel continues; nil if it does not wait, if it continues at the log's end, or
    /// if that is not decided yet.
    public var parkedAt: EventLogPosition? {
        guard stage == .waiting, case .from(let position) = resumption else { return nil }
        return position
    }

    /// Returns the position of a client that has just received all rows of a snapshot taken at `rows`. Its bindings
    /// without rows lack the changes since the channel was parked.
    public func position(afterRowsAt rows: EventLogPosition) -> EventLogPosition {
        guard !wishes.wantsRowsOfAll, case .from(let parked) = resumption else { return rows }
        return parked.epoch == rows.epoch && rows.offset < parked.offset ? rows : parked
    }

    /// True if the hub has not reported some loss, or does not know if the client has received the report.
    public var owesLoss: Bool { owesReport || receipt.map { !$0.isFreeOfLoss } ?? false }

    /// True if the hub must still send the client a loss report, or rows of a snapshot.
    public var owesReport: Bool {
        lossReport.untold != nil || owedLoss != nil || awaitsRows || lacksSnapshot || seen != nil
    }

    /// Returns the epoch of the log entry that the channel last received. The log's end may be in a later epoch, after
    /// a gap.
    public func epoch(_ view: LogView) -> UInt64? {
        if let parkedAt { return parkedAt.epoch }
        // The reader has not read anything for the channel. A gap right after its position has not been reported.
        if stage == .catchingUp, case .from(let position) = resumption, let reader = view.reader,
            reader.epoch == nil || reader.frontier < position.offset
        {
            return position.epoch
        }
        return view.epoch
    }

    /// Returns the position from which the channel could resume now; nil until the log has begun.
    public func position(_ view: LogView) -> EventLogPosition? {
        epoch(view).map { EventLogPosition(epoch: $0, offset: max(since ?? 0, view.reader?.frontier ?? 0)) }
    }

    /// Returns the channel's position and the outcome of its resume, for the join's reply.
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

    /// Returns how much the hub has sent to the client; nil if a change for the client waits for PostgreSQL and its
    /// offset is unknown.
    public func reach(_ view: LogView) -> ChannelReceipt.Reach? {
        guard isOpen else { return nil }
        // A parked channel has received everything before its position.
        guard let reader = view.reader else { return since.map { .offset($0) } }
        let begins = since ?? 0
        if reader.isHeld { return reader.firstHeld.map { .offset(max(begins, $0)) } }
        // A lagging reader may still read entries from before the channel's join.
        return reader.isLive && reader.frontier >= begins ? .socket : .offset(max(begins, reader.frontier))
    }

    /// Returns the offset before which the hub has sent everything to the client; nil if it has sent nothing.
    /// `acknowledged` is the offset that the client has acknowledged.
    public func sent(_ view: LogView, acknowledged: UInt64?) -> UInt64? {
        if let sentAtEnd { return sentAtEnd }
        guard isOpen else { return resumedFrom }
        switch reach(view) {
        case .offset(let offset): return offset
        case .socket: return view.reader?.frontier ?? view.liveFrontier
        case nil: return acknowledged.map { max($0, since ?? 0) }
        }
    }

    /// True unless the hub still has to send the client something from before the offset. If that is not known, returns
    /// true.
    public func wasSent(upTo offset: UInt64?, _ view: LogView) -> Bool {
        guard receipt != nil, let offset, case .offset(let sent) = reach(view) else { return true }
        return offset <= sent
    }

    /// Returns the offset from which the log must keep entries for the channel; nil for a channel at the log's end.
    public func needed(_ view: LogView) -> UInt64? {
        if let parkedAt { return parkedAt.offset }
        guard let reader = view.reader, !reader.isLive else { return nil }
        return max(reader.frontier, since ?? 0)
    }

    /// Returns the offset before which the client has acknowledged everything, from what its socket says.
    ///
    /// Changes are not sent any more once the socket has stopped taking data. The socket then has nothing to acknowledge,
    /// and counts as up to date. So nothing counts beyond what was sent before that.
    public func acknowledged(_ offset: UInt64?) -> UInt64? {
        guard let offset, let sentAtEnd else { return offset }
        return min(offset, sentAtEnd)
    }

    /// Returns the position to remember when the channel ends, for the client's return; nil if none is needed.
    public func kept(_ view: LogView, acknowledged: UInt64?) -> EventLogPosition? {
        if isOpen { return acknowledged.map { last($0, view) } }
        // Before the join's reply, the channel has only the position from which it would have resumed, or an unreported
        // refusal.
        let unopened = receipt?.own ?? resumedFrom ?? (isReturning ? view.liveFrontier : nil)
        guard let unopened else { return nil }
        if case .asked(let position) = resumption { return EventLogPosition(epoch: position.epoch, offset: unopened) }
        return last(unopened, view)
    }

    /// Returns what the hub has sent to a client that joins again on the same socket, and what of that the client has
    /// acknowledged. Nil if it has sent nothing. Earlier data on a socket arrives before later data.
    public func left(
        _ view: LogView, acknowledged: UInt64?
    ) -> (sent: EventLogPosition, got: EventLogPosition)? {
        sent(view, acknowledged: acknowledged).map {
            (last($0, view), last(min(acknowledged ?? $0, $0), view))
        }
    }

    /// Returns the offset as a position when the channel ends. If the log had not begun when the channel joined, the
    /// position is outside of every log. The hub then tells the client to fetch.
    private func last(_ offset: UInt64, _ view: LogView) -> EventLogPosition {
        epoch(view).map { EventLogPosition(epoch: $0, offset: offset) } ?? EventLogPosition(epoch: 0, offset: 0)
    }
}
