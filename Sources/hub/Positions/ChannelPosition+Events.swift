import Catalog
import EventLog
import Protocol

extension ChannelPosition {
    /// Event that may change where the channel stands.
    public enum Event: Equatable, Sendable {
        // The join.

        /// The client asked to receive everything after a position.
        case asked(EventLogPosition)
        /// The hub has recognised a returning client that had received everything up to a position. If `owesLoss` is
        /// true, the client may lack a report about lost changes.
        case recognised(EventLogPosition, owesLoss: Bool)
        /// The client was connected before, and the hub does not know what it has received. If `isRepeated` is true,
        /// the hub has already told the client so on this socket.
        case pastUnknown(isRepeated: Bool)
        /// The hub has decided on the join's reply.
        case answered
        /// The hub has sent the join's reply, so the channel is open. If `isSocketFull` is true, its socket takes no
        /// more data for now.
        case opened(isSocketFull: Bool)
        /// The channel has ended.
        case ended

        // Readers.

        /// A reader may serve the channel now. `log` is used while the hub has not decided if the log has the channel's
        /// position.
        case due(log: LogExtent)
        /// A catch-up reader now serves the channel.
        case boarded
        /// The maximum number of catch-up readers is running, so that no other may begin now.
        case passesFull
        // The log cannot give the changes that the client misses. The channel continues at the log's end, which is nil
        // while it is not known.

        /// A catch-up reader cannot begin at the channel's position, because the log cannot be read there.
        case startUnreadable(end: UInt64?)
        /// The reader that serves the channel cannot read on.
        case pastUnreadable(end: UInt64?)
        /// Retention has deleted changes that the channel has yet to receive.
        case retentionPassed(end: UInt64?)
        /// A reader now serves the channel; its bindings are placed next or have been placed. `end` is the end of the
        /// log.
        case bound(end: UInt64)
        /// The channel's catch-up reader has reached the position of the live reader.
        case reachedSeam(UInt64)

        // Holds. The progress of the channel's reader is nil if the channel cannot be parked now.

        /// The channel's socket takes no more data for now. The value is the progress of the channel's reader; nil if
        /// the channel cannot be parked now.
        case socketFull(ReaderProgress?)
        /// The channel's socket has sent everything that was queued.
        case socketDrained
        /// More changes for the channel wait for PostgreSQL's answers than the hub keeps. The value is the progress of
        /// the channel's reader; nil if the channel cannot be parked now.
        case answersOverflowed(ReaderProgress?)
        /// PostgreSQL does not show a commit yet that the log has. The value is the progress of the channel's reader;
        /// nil if the channel cannot be parked now.
        case commitHidden(ReaderProgress?)
        /// PostgreSQL now shows the commits that held the channel.
        case commitShown
        /// The hub is about to send the existing rows of the channel's snapshot. The value is the progress of the
        /// channel's reader; nil if the channel cannot be parked now.
        case rowsDue(ReaderProgress?)
        /// The hub has sent the last row of the channel's snapshot, or has given up. `seen` contains the transactions
        /// in the rows; nil if no rows were read.
        case rowsEnded(at: EventLogPosition?, seen: SeenTransactions?)
        /// The hub cannot send the existing rows of the channel's snapshot. If `isPassing` is true, the client may get
        /// them if it joins again.
        case rowsRefused(isPassing: Bool)
        /// The log has passed all transactions that the sent rows of the snapshot contain.
        case rowsPassed
        /// The hub is about to send existing rows again, because the client may see other rows than before. The value is
        /// the progress of the channel's reader; nil if the channel cannot be parked now.
        case otherRowsDue(ReaderProgress?)
        /// The hub has sent the rows that came into the client's sight, or has given up. The channel goes on where it was
        /// parked.
        case otherRowsEnded

        // What the client knows.

        /// The hub has sent the client a log offset as its position, in a position message or in a change.
        case marked(UInt64)
        /// The channel no longer needs database messages before this offset.
        case messagesPassed(UInt64)
        /// The socket takes no more data and will close. `acknowledged` is the offset that the client has acknowledged.
        case socketEnds(LogView, acknowledged: UInt64?)
        /// The hub has found that the client may have missed changes.
        case lossNoticed(LossReason)
        /// The bindings are in place, so that a loss which waited for them can be reported.
        case owedLossDue
        /// The pause since the last loss report has ended.
        case lossPauseEnded
        /// The hub is about to tell the client that it has received everything so far, so that a waiting loss report is
        /// due now.
        case reportsDue
        /// Another person's token has replaced the channel's token.
        case holderReplaced
    }

    /// Step that the caller must take after an event.
    public enum Action: Equatable, Sendable {
        /// Count the outcome of a resume, which is now decided.
        case count(Resumption)
        /// Drop the search for past messages, because the channel receives everything after its position.
        case forgetReplay
        /// Skip the database messages up to the log's end for this channel.
        case passOverMessages
        /// Let the live reader serve the channel.
        case boardLive
        /// Let a catch-up reader serve the channel from this position on.
        case board(EventLogPosition)
        /// Add the channel to those that wait for the next catch-up reader.
        case awaitPass
        /// Let the channel, which nothing holds any more, wait for a catch-up reader that begins at this position. If
        /// it is too far behind, disconnect its client.
        case goOn(EventLogPosition)
        /// Remove the channel from its reader. Its changes from this position on remain in the log.
        case park(EventLogPosition)
        /// Remove the channel from its reader, because another reader will then serve it.
        case leaveReader
        /// Move the channel from its catch-up reader to the live reader.
        case handOver
        /// Tell the client that it has received everything before its present position.
        case tellCaughtUp
        /// Send the next rows of the channel's snapshot.
        case sendRows
        /// Leave out of the changes that follow the transactions that the snapshot's rows contain.
        case leaveOutSeen
        /// End the HTTP request for changes, with a reason why its client must fetch again.
        case cutFeed(LogStanding.Refusal)
        /// Count changes that were not sent although the client expects them.
        case countLoss
        /// Tell the client that changes may be missing.
        case tellLoss(LossReason)
    }

    /// Applies an event and returns the steps that the caller must take, in order. An event that does not fit the state
    /// has no effect.
    public mutating func take(_ event: Event) -> [Action] {
        switch event {
        case .asked(let position): resumption = .asked(position)
        case .recognised(let position, let owesLoss): recognise(position, owesLoss)
        case .pastUnknown(let isRepeated):
            // The join's reply answers a client that named its position.
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
        case .rowsDue, .rowsEnded, .rowsRefused, .rowsPassed, .otherRowsDue, .otherRowsEnded: return takeRows(event)
        case .marked(let offset): markedAt = offset
        case .messagesPassed(let offset): messagesSince = max(messagesSince, offset)
        case .socketEnds(let view, let acknowledged): sentAtEnd = sent(view, acknowledged: acknowledged)
        case .lossNoticed, .owedLossDue, .lossPauseEnded, .reportsDue, .holderReplaced: return takeLoss(event)
        }
        return []
    }

    /// Sets or removes (nil) the channel's receipt, by which the hub recognises a returning client. A channel without a
    /// receipt is one whose client the hub could not recognise.
    public mutating func keep(_ receipt: ChannelReceipt?) { self.receipt = receipt }

    /// Applies a function to the channel's receipt; does nothing if there is none.
    public mutating func note(_ change: (inout ChannelReceipt) -> Void) {
        guard var receipt else { return }
        change(&receipt)
        self.receipt = receipt
    }

    // MARK: The join

    private mutating func recognise(_ position: EventLogPosition, _ owesLoss: Bool) {
        guard resumption == .none else { return }
        // The client may lack rows of its snapshot. It asked for all existing rows, so the channel begins again with
        // these.
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

    /// Decides if the log has the position from which the client asked to resume. Does nothing if the log cannot be
    /// read yet.
    private mutating func decide(_ log: LogExtent) -> [Action] {
        guard case .asked(let position) = resumption, let decision = log.decision(about: position) else { return [] }
        resumption = decision
        guard case .refused(let refusal) = decision else {
            // A channel that resumes has its rows already, and receives all messages since its position.
            snapshot = .none
            messagesSince = 0
            return [.count(decision), .forgetReplay]
        }
        // The join's reply tells a client that named a position. A recognised client needs a loss report.
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

    /// Refuses a resume because the log cannot give the changes that the client misses. The client learns it from the
    /// join's reply, or from a loss report if the reply has been sent.
    private mutating func refuse(_ refusal: LogStanding.Refusal, _ end: UInt64?) -> [Action] {
        resumption = .refused(refusal)
        // A live reader may lag. Without this it would repeat changes that another reader has already sent.
        since = end
        if wishes.isFeed, isOpen { return [.cutFeed(refusal)] }
        if wishes.wantsRows { snapshot = .wanted }
        if !beginsWithEverything, isAnswered || isReturning { owedLoss = LossReason(refusal) }
        return []
    }

    private mutating func handOver(at frontier: UInt64) -> [Action] {
        guard stage == .catchingUp, isOpen else { return [] }
        // A channel that a reader further ahead had parked continues at its own position, not earlier.
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

    /// Removes the channel from its reader. Changes that wait for PostgreSQL will be read from the log again.
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

    /// Lets the parked channel continue if nothing holds it any more.
    private func goOn() -> [Action] {
        guard isOpen, let parkedAt else { return [] }
        if holds == .snapshot { return [.sendRows] }
        return holds.isEmpty ? [.goOn(parkedAt)] : []
    }

    // MARK: Rows

    private mutating func takeRows(_ event: Event) -> [Action] {
        switch event {
        case .rowsDue(let progress): return snapshot == .wanted ? parkForRows(at: progress) : []
        case .otherRowsDue(let progress): return snapshot == .none ? parkForRows(at: progress) : []
        case .otherRowsEnded:
            guard snapshot == .running else { return [] }
            snapshot = .none
            holds.remove(.snapshot)
            return goOn()
        case .rowsEnded(let position, let transactions):
            guard snapshot == .running else { return [] }
            snapshot = .none
            holds.remove(.snapshot)
            guard let position, case .from(let parked) = resumption else { return goOn() }
            seen = transactions
            floor = position.offset
            toldAt = self.position(afterRowsAt: position).offset
            // Database messages continue at the parked position, changes at the snapshot's position.
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

    private mutating func parkForRows(at progress: ReaderProgress?) -> [Action] {
        let actions = park(at: progress)
        guard !actions.isEmpty else { return [] }
        snapshot = .running
        holds.insert(.snapshot)
        return actions
    }

    // MARK: Losses

    private mutating func takeLoss(_ event: Event) -> [Action] {
        switch event {
        case .lossNoticed(let reason): return notice(reason)
        case .holderReplaced:
            // The log does not repeat rows of the former holder's snapshot, so the new holder may lack rows.
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

    /// Records that changes were not sent, or may not have been. The report waits until the join has been answered:
    /// before that, the client would relate it to an earlier channel.
    private mutating func notice(_ reason: LossReason) -> [Action] {
        guard isAnswered else {
            owedLoss = reason
            return []
        }
        return [.countLoss] + (lossReport.take(reason).map { [.tellLoss($0)] } ?? [])
    }

    /// Records a loss that the hub reports when the bindings are in place, even if the join has been answered before.
    public mutating func owe(_ reason: LossReason) { owedLoss = reason }
}
