import Catalog
import EventLog
import Protocol

extension ChannelPosition {
    public enum Event: Equatable, Sendable {
        // The join.

        /// The client asked for everything since a position.
        case asked(EventLogPosition)
        /// The hub has recognised a client that had received everything up to a position. `owesLoss` is true if it may
        /// lack a report about lost changes.
        case recognised(EventLogPosition, owesLoss: Bool)
        /// The client was connected before, and the hub does not know what it has received. `isRepeated` is true if it
        /// was told so on this socket.
        case pastUnknown(isRepeated: Bool)
        case answered
        case opened(isSocketFull: Bool)
        case ended

        // Readers.

        /// The channel is to be placed in a reader, or may be placed now. `log` is needed while the channel's position
        /// is undecided.
        case due(log: LogExtent)
        /// A reader behind the log's end has taken the channel.
        case boarded
        /// The greatest number of readers behind the log's end is reached: no other may begin now.
        case passesFull
        // The changes that the client misses cannot be sent. The channel goes on at the log's end; nil while that is not
        // known.

        /// The reader that was to begin at the channel's position cannot read there.
        case startUnreadable(end: UInt64?)
        /// The reader that serves the channel cannot read on.
        case pastUnreadable(end: UInt64?)
        /// Retention has removed changes that wait for the channel.
        case retentionPassed(end: UInt64?)
        /// A reader knows the channel now, before or when its bindings are placed. `end` is the end of the log.
        case bound(end: UInt64)
        /// The channel's reader has come to where the live reader stands.
        case reachedSeam(UInt64)

        // Holds. The progress of the channel's reader is nil if the channel cannot be parked now.

        case socketFull(ReaderProgress?)
        case socketDrained
        /// The changes that wait for PostgreSQL's answers are more than the hub keeps.
        case answersOverflowed(ReaderProgress?)
        /// PostgreSQL does not show a commit that the log has.
        case commitHidden(ReaderProgress?)
        case commitShown
        /// The rows that exist are to be sent.
        case rowsDue(ReaderProgress?)
        /// The last row was sent, or the sending was given up. `seen` is nil if no rows were read.
        case rowsEnded(at: EventLogPosition?, seen: SeenTransactions?)
        /// The rows cannot be sent. `isPassing` is true if a new join may get them.
        case rowsRefused(isPassing: Bool)
        /// The log has passed all transactions that the sent rows include.
        case rowsPassed

        // What the client knows.

        /// A marker, or a change in its place, told the client an offset.
        case marked(UInt64)
        /// Messages of the database before this offset are past for the channel.
        case messagesPassed(UInt64)
        /// The socket takes no more data, and will close.
        case socketEnds(LogView, acknowledged: UInt64?)
        case lossNoticed(LossReason)
        /// The bindings are in place: the loss that waited for them is due.
        case owedLossDue
        case lossPauseEnded
        /// Everything before this point was sent: a loss that waits is due now.
        case reportsDue
        /// The channel's token was replaced by another person's.
        case holderReplaced
    }

    public enum Action: Equatable, Sendable {
        /// The outcome of a resume is known.
        case count(Resumption)
        /// The look-up of past messages is dropped: the channel receives everything since its position.
        case forgetReplay
        /// Messages of the database up to the log's end are past for the channel.
        case passOverMessages
        /// The live reader takes the channel.
        case boardLive
        /// A reader behind the log's end takes the channel at this position.
        case board(EventLogPosition)
        /// The channel joins those that wait for the next reader behind the log's end.
        case awaitPass
        /// The channel, which nothing holds any more, waits for a reader too, unless it is too far behind.
        case goOn(EventLogPosition)
        /// The reader lets the channel go. Its changes stay in the log from this position on.
        case park(EventLogPosition)
        /// The reader lets the channel go, which goes on elsewhere.
        case leaveReader
        /// The live reader takes the channel over from its reader.
        case handOver
        /// The client is told that everything before this point was sent.
        case tellCaughtUp
        /// The next rows of the snapshot are sent.
        case sendRows
        /// Transactions that the rows include are left out of the changes that follow.
        case leaveOutSeen
        /// The request for changes ends with a reason to fetch again.
        case cutFeed(LogStanding.Refusal)
        /// Changes that a client knows it waits for were not sent.
        case countLoss
        /// The client is told that changes may be missing.
        case tellLoss(LossReason)
    }

    /// Applies an event and returns the actions that follow, in their order. An event that does not fit the state changes
    /// nothing.
    public mutating func take(_ event: Event) -> [Action] {
        switch event {
        case .asked(let position): resumption = .asked(position)
        case .recognised(let position, let owesLoss): recognise(position, owesLoss)
        case .pastUnknown(let isRepeated):
            // A client that named its position is answered by the join's reply.
            if resumption == .none, !beginsWithEverything { owedLoss = .unknownPosition(isRepeated: isRepeated) }
        case .answered: isAnswered = true
        case .opened(let isSocketFull):
            isOpen = true
            if isSocketFull { holds.insert(.socket) }
        case .ended: stage = .ended
        case .due(let log): return place(log)
        case .boarded: board()
        case .passesFull: return [.awaitPass]
        case .startUnreadable(let end): return replaceStart(end)
        case .pastUnreadable(let end):
            stage = .waiting
            return [.leaveReader] + refuse(.unreadable, end) + [.passOverMessages, .awaitPass]
        case .retentionPassed(let end): return refuse(.olderThanRetention, end)
        case .bound(let end):
            since = since ?? end
            toldAt = nil
        case .reachedSeam(let offset): return handOver(at: offset)
        case .socketFull, .socketDrained, .answersOverflowed, .commitHidden, .commitShown: return hold(event)
        case .rowsDue, .rowsEnded, .rowsRefused, .rowsPassed: return takeRows(event)
        case .marked(let offset): markedAt = offset
        case .messagesPassed(let offset): messagesSince = max(messagesSince, offset)
        case .socketEnds(let view, let acknowledged): sentAtEnd = sent(view, acknowledged: acknowledged)
        case .lossNoticed, .owedLossDue, .lossPauseEnded, .reportsDue, .holderReplaced: return takeLoss(event)
        }
        return []
    }

    /// Makes the channel able to keep a receipt, or takes the receipt away if the hub could not recognise its client.
    public mutating func keep(_ receipt: ChannelReceipt?) { self.receipt = receipt }

    /// Passes an event to the channel's receipt. Does nothing if there is none.
    public mutating func note(_ change: (inout ChannelReceipt) -> Void) {
        guard var receipt else { return }
        change(&receipt)
        self.receipt = receipt
    }

    // MARK: The join

    private mutating func recognise(_ position: EventLogPosition, _ owesLoss: Bool) {
        guard resumption == .none else { return }
        // The client may lack rows of its snapshot. It asked to begin with all existing rows, so it begins anew.
        if owesLoss, beginsWithEverything { return }
        isReturning = true
        resumption = .asked(position)
        if owesLoss { owedLoss = .toldBeforeReturn }
    }

    // MARK: Readers

    private mutating func place(_ log: LogExtent) -> [Action] {
        guard stage == .joining || stage == .waiting else { return [] }
        stage = .waiting
        let actions = decide(log)
        switch resumption {
        case .asked: return actions + [.awaitPass]
        case .none, .refused:
            stage = .live
            return actions + [.boardLive]
        case .from(let position):
            if isOpen, !holds.isEmpty { return actions }
            since = position.offset
            messagesSince = max(messagesSince, position.offset)
            return actions + [.board(position)]
        }
    }

    /// Decides about the position that the client asked for, if the log can be read.
    private mutating func decide(_ log: LogExtent) -> [Action] {
        guard case .asked(let position) = resumption, let decision = log.decision(about: position) else { return [] }
        resumption = decision
        guard case .refused(let refusal) = decision else {
            // A channel that resumes has its rows already, and receives all messages since its position.
            snapshot = .none
            messagesSince = 0
            return [.count(decision), .forgetReplay]
        }
        // The reply answers a client that asked by itself.
        if isReturning, !beginsWithEverything { owedLoss = LossReason(refusal) }
        return [.count(decision), .passOverMessages]
    }

    private mutating func board() {
        guard stage == .waiting else { return }
        assert(!isOpen || holds.isEmpty, "a channel that is held is served by nobody")
        stage = .catchingUp
    }

    private mutating func replaceStart(_ end: UInt64?) -> [Action] {
        let isCut = wishes.isFeed && isOpen
        let actions = refuse(.unreadable, end) + [.passOverMessages]
        if isCut { return actions }
        stage = .live
        return actions + [.boardLive]
    }

    /// Refuses a resume because the changes that the client misses cannot be sent. The refusal is part of the join's
    /// reply, or is sent as a loss if the reply is already out.
    private mutating func refuse(_ refusal: LogStanding.Refusal, _ end: UInt64?) -> [Action] {
        resumption = .refused(refusal)
        // A live reader that lags would otherwise send changes again that another reader has sent.
        since = end
        if wishes.isFeed, isOpen { return [.cutFeed(refusal)] }
        if wishes.wantsRows { snapshot = .wanted }
        if !beginsWithEverything, isAnswered || isReturning { owedLoss = LossReason(refusal) }
        return []
    }

    private mutating func handOver(at frontier: UInt64) -> [Action] {
        guard stage == .catchingUp, isOpen else { return [] }
        // A channel that was parked by a reader further on continues from there, not earlier.
        let offset = max(frontier, since ?? 0)
        since = offset
        messagesSince = max(messagesSince, offset)
        stage = .live
        return [.handOver, .tellCaughtUp]
    }

    // MARK: Holds

    private mutating func hold(_ event: Event) -> [Action] {
        switch event {
        case .socketFull(let progress):
            holds.insert(.socket)
            return park(at: progress)
        case .answersOverflowed(let progress): return park(at: progress) + goOn()
        case .commitHidden(let progress):
            let actions = park(at: progress)
            if !actions.isEmpty { holds.insert(.commit) }
            return actions
        case .socketDrained:
            holds.remove(.socket)
            return goOn()
        case .commitShown:
            holds.remove(.commit)
            return goOn()
        default: return []
        }
    }

    /// Takes the channel from its reader. Changes that wait for PostgreSQL are read again from the log.
    private mutating func park(at progress: ReaderProgress?) -> [Action] {
        guard isOpen, isServed, let progress, let epoch = progress.epoch else { return [] }
        assert(progress.firstHeld ?? 0 <= progress.frontier, "what waits was read")
        let offset = max(since ?? 0, progress.firstHeld ?? progress.frontier)
        let position = EventLogPosition(epoch: epoch, offset: offset)
        messagesSince = max(messagesSince, progress.messageFrontier)
        toldAt = progress.toldAt
        since = offset
        resumption = .from(position)
        stage = .waiting
        return [.park(position)]
    }

    /// Lets the channel go on if nothing holds it.
    private func goOn() -> [Action] {
        guard isOpen, let parkedAt else { return [] }
        if holds == .snapshot { return [.sendRows] }
        return holds.isEmpty ? [.goOn(parkedAt)] : []
    }

    // MARK: Rows

    private mutating func takeRows(_ event: Event) -> [Action] {
        switch event {
        case .rowsDue(let progress):
            guard snapshot == .wanted else { return [] }
            let actions = park(at: progress)
            guard !actions.isEmpty else { return [] }
            snapshot = .running
            holds.insert(.snapshot)
            return actions
        case .rowsEnded(let position, let transactions):
            guard snapshot == .running else { return [] }
            snapshot = .none
            holds.remove(.snapshot)
            guard let position, case .from(let parked) = resumption else { return goOn() }
            seen = transactions
            floor = position.offset
            toldAt = position.offset
            // Messages of the database wait from the parked position on, changes from the snapshot's position on.
            if position.offset < parked.offset { resumption = .from(position) }
            return [.leaveOutSeen] + goOn()
        case .rowsRefused(let isPassing):
            snapshot = .none
            lacksSnapshot = isPassing
            return []
        case .rowsPassed:
            seen = nil
            floor = 0
            return []
        default: return []
        }
    }

    // MARK: Losses

    private mutating func takeLoss(_ event: Event) -> [Action] {
        switch event {
        case .lossNoticed(let reason): return notice(reason)
        case .holderReplaced:
            // The log does not repeat rows of the former holder's snapshot, so the new holder may lack them.
            return seen == nil ? [] : notice(.tokenChanged)
        case .owedLossDue:
            guard let reason = owedLoss else { return [] }
            owedLoss = nil
            return notice(reason)
        case .lossPauseEnded: return lossReport.pauseHasEnded().map { [.tellLoss($0)] } ?? []
        case .reportsDue: return lossReport.tellNow().map { [.tellLoss($0)] } ?? []
        default: return []
        }
    }

    /// Notes that changes were not sent, or may not have been. The report waits until the client knows that it has joined:
    /// before that, it would take the report for one about an earlier channel.
    private mutating func notice(_ reason: LossReason) -> [Action] {
        guard isAnswered else {
            owedLoss = reason
            return []
        }
        return [.countLoss] + (lossReport.take(reason).map { [.tellLoss($0)] } ?? [])
    }

    /// Owes a report that is due when the bindings are in place, even if the client knows of its channel.
    public mutating func owe(_ reason: LossReason) { owedLoss = reason }
}
