import Catalog
import EventLog
import Protocol
import TestSupport
import Testing

@testable import Positions

/// Tests of the state machine of a channel's position. They pass events to it and compare the actions that it returns.
@Suite(.within(minutes: 1)) struct ChannelPositionTests {
    typealias Action = ChannelPosition.Action

    private static func at(_ offset: UInt64, epoch: UInt64 = 1) -> EventLogPosition {
        EventLogPosition(epoch: epoch, offset: offset)
    }

    private static func log(_ oldest: UInt64?, _ end: UInt64) -> LogExtent { LogExtent(end: at(end), oldest: oldest) }
    private static let unknownLog = LogExtent(end: nil, oldest: nil)

    private static func reader(
        _ frontier: UInt64, isLive: Bool = true, firstHeld: UInt64? = nil, toldAt: UInt64? = nil
    ) -> ReaderProgress {
        var reader = ReaderProgress(isLive: isLive, epoch: 1, frontier: frontier, messageFrontier: frontier)
        reader.isHeld = firstHeld != nil
        reader.firstHeld = firstHeld
        reader.toldAt = toldAt
        return reader
    }

    private static func view(_ reader: ReaderProgress?, live: UInt64 = 0) -> LogView {
        LogView(reader: reader, liveFrontier: reader?.isLive == true ? reader?.frontier ?? live : live, epoch: 1)
    }

    private static func joining(
        isFeed: Bool = false, wantsRows: Bool = false, hasOthers: Bool = false, isPrivate: Bool = false
    ) -> ChannelPosition {
        ChannelPosition(
            .init(
                isFeed: isFeed, wantsRows: wantsRows, wantsRowsOfAll: wantsRows && !hasOthers,
                rowsAreEverything: wantsRows && !hasOthers && !isPrivate))
    }

    /// Returns an open channel at the log's end, whose changes begin at an offset.
    private static func live(
        _ since: UInt64 = 10, wantsRows: Bool = false, hasOthers: Bool = false
    ) -> ChannelPosition {
        var channel = joining(wantsRows: wantsRows, hasOthers: hasOthers)
        #expect(channel.take(.due(log: unknownLog)) == [.boardLive])
        for event: ChannelPosition.Event in [.bound(end: since), .answered, .opened(isSocketFull: false)] {
            #expect(channel.take(event) == [])
        }
        return channel
    }

    /// Returns an open channel that catches up from an offset.
    private static func catchingUp(from offset: UInt64) -> ChannelPosition {
        var channel = joining()
        _ = channel.take(.asked(at(offset)))
        _ = channel.take(.due(log: log(0, 100)))
        _ = channel.take(.boarded)
        for event: ChannelPosition.Event in [.bound(end: 100), .answered, .opened(isSocketFull: false)] {
            #expect(channel.take(event) == [])
        }
        return channel
    }

    // MARK: Joins

    @Test func `a channel that asks for nothing is live at once`() {
        let channel = Self.live(10)
        #expect(channel.stage == .live && channel.since == 10 && !channel.isResumed)
        #expect(channel.position(Self.view(Self.reader(12))) == Self.at(12))
        #expect(channel.reach(Self.view(Self.reader(12))) == .socket)
        #expect(
            channel.reach(Self.view(Self.reader(8))) == .offset(10), "a loop that lags has sent nothing of its time")
        #expect(channel.needed(Self.view(Self.reader(12))) == nil)
    }

    @Test func `a client that asks for a position is placed there when the log can be read`() {
        var channel = Self.joining()
        #expect(channel.take(.asked(Self.at(5))) == [])
        #expect(channel.isUndecided && channel.isResumed)
        #expect(channel.take(.due(log: Self.unknownLog)) == [.awaitPass])
        #expect(channel.take(.due(log: Self.log(nil, 9))) == [.awaitPass], "the log's beginning is not known")
        #expect(
            channel.take(.due(log: Self.log(2, 9)))
                == [.count(.from(Self.at(5))), .forgetReplay, .board(Self.at(5))])
        #expect(channel.stage == .waiting && channel.since == 5 && channel.messagesSince == 5)
        #expect(channel.take(.boarded) == [])
        #expect(channel.stage == .catchingUp && channel.parkedAt == nil)
    }

    @Test func `a position in a damaged beginning of the log is refused for the damage`() {
        var channel = Self.joining()
        _ = channel.take(.asked(Self.at(1)))
        let log = LogExtent(end: Self.at(9), oldest: 2, isBehindDamage: true)
        #expect(channel.take(.due(log: log)) == [.count(.refused(.unreadable)), .passOverMessages, .boardLive])
    }

    @Test(arguments: [
        (EventLogPosition(epoch: 2, offset: 5), LogStanding.Refusal.otherEpoch),
        (EventLogPosition(epoch: 1, offset: 10), .unknown),
        (EventLogPosition(epoch: 1, offset: 1), .olderThanRetention),
    ])
    func `a position that the log does not have is refused in the reply`(
        _ position: EventLogPosition, _ refusal: LogStanding.Refusal
    ) {
        var channel = Self.joining()
        _ = channel.take(.asked(position))
        #expect(
            channel.take(.due(log: Self.log(2, 9)))
                == [.count(.refused(refusal)), .passOverMessages, .boardLive])
        #expect(channel.owedLoss == nil, "the reply tells it")
        let standing = channel.standing(Self.view(Self.reader(9)))
        #expect(throws: refusal) { try standing.recovery?.get() }
    }

    @Test func `a client that the hub recognises goes on, or is told of the loss`() {
        var channel = Self.joining()
        _ = channel.take(.recognised(Self.at(5), owesLoss: false))
        #expect(channel.isReturning)
        #expect(channel.take(.due(log: Self.log(0, 9))).last == .board(Self.at(5)))
        #expect(channel.owedLoss == nil)

        var late = Self.joining()
        _ = late.take(.recognised(Self.at(1), owesLoss: false))
        #expect(late.take(.due(log: Self.log(2, 9))).last == .boardLive)
        #expect(late.owedLoss == .retention)

        var told = Self.joining()
        _ = told.take(.recognised(Self.at(5), owesLoss: true))
        #expect(told.owedLoss == .toldBeforeReturn && told.isResumed)
    }

    @Test func `a client that receives all rows misses nothing, unless its channel is private`() {
        var everything = Self.joining(wantsRows: true)
        _ = everything.take(.recognised(Self.at(5), owesLoss: true))
        #expect(!everything.isResumed, "it begins anew with its rows")
        _ = everything.take(.pastUnknown(isRepeated: false))
        #expect(everything.owedLoss == nil)
        var ofTopic = Self.joining(wantsRows: true, isPrivate: true)
        _ = ofTopic.take(.pastUnknown(isRepeated: true))
        #expect(ofTopic.owedLoss == .unknownPosition(isRepeated: true))
    }

    @Test func `a client that names its position is not taken for another`() {
        var channel = Self.joining()
        _ = channel.take(.asked(Self.at(7)))
        _ = channel.take(.recognised(Self.at(3), owesLoss: true))
        _ = channel.take(.pastUnknown(isRepeated: false))
        #expect(channel.resumption == .asked(Self.at(7)) && channel.owedLoss == nil && !channel.isReturning)
    }

    @Test func `rows are not sent again to a channel that resumes, and are to one that cannot`() {
        var resumed = Self.joining(wantsRows: true)
        _ = resumed.take(.asked(Self.at(5)))
        _ = resumed.take(.due(log: Self.log(0, 9)))
        #expect(!resumed.awaitsRows)
        #expect(resumed.take(.retentionPassed(end: 9)) == [])
        #expect(resumed.snapshot == .wanted && resumed.since == 9)
    }

    // MARK: Passes

    @Test func `a channel waits while no pass may begin`() {
        var channel = Self.joining()
        _ = channel.take(.asked(Self.at(5)))
        _ = channel.take(.due(log: Self.log(0, 9)))
        #expect(channel.take(.passesFull) == [.awaitPass])
        #expect(channel.stage == .waiting && channel.needed(Self.view(nil)) == 5)
        #expect(channel.take(.due(log: Self.unknownLog)) == [.board(Self.at(5))])
    }

    @Test func `a start that cannot be read puts the channel at the log's end, with its loss`() {
        var channel = Self.joining()
        _ = channel.take(.recognised(Self.at(5), owesLoss: false))
        _ = channel.take(.due(log: Self.log(0, 9)))
        #expect(channel.take(.startUnreadable(end: 9)) == [.passOverMessages, .boardLive])
        #expect(channel.stage == .live && channel.owedLoss == .unreadable)
    }

    @Test func `a past that stops reading is given up, and the channel boards again`() {
        var channel = Self.catchingUp(from: 5)
        #expect(channel.take(.pastUnreadable(end: 9)) == [.leaveReader, .passOverMessages, .awaitPass])
        #expect(channel.owedLoss == .unreadable && channel.since == 9)
        #expect(channel.take(.due(log: Self.unknownLog)) == [.boardLive])
    }

    @Test func `a channel that was given up is not led back by a live reader that lags`() {
        var channel = Self.catchingUp(from: 5)
        _ = channel.take(.pastUnreadable(end: 30))
        #expect(channel.take(.due(log: Self.unknownLog)) == [.boardLive])
        #expect(channel.take(.socketFull(Self.reader(10))) == [.park(Self.at(30))])
    }

    @Test func `a feed whose past is gone ends with the position of now`() {
        var feed = Self.joining(isFeed: true)
        _ = feed.take(.asked(Self.at(5)))
        _ = feed.take(.due(log: Self.log(0, 9)))
        _ = feed.take(.passesFull)
        _ = feed.take(.opened(isSocketFull: false))
        #expect(feed.take(.retentionPassed(end: 9)) == [.cutFeed(.olderThanRetention)])
        #expect(feed.since == 9 && feed.owedLoss == nil)
    }

    @Test func `at the seam a channel moves to the live reader, and hears that it has caught up`() {
        var channel = Self.catchingUp(from: 5)
        #expect(channel.reach(Self.view(Self.reader(8, isLive: false))) == .offset(8))
        #expect(channel.needed(Self.view(Self.reader(8, isLive: false))) == 8)
        #expect(channel.take(.reachedSeam(12)) == [.handOver, .tellCaughtUp])
        #expect(channel.stage == .live && channel.since == 12 && channel.messagesSince == 12)
        #expect(channel.take(.reachedSeam(13)) == [], "it is live already")
    }

    @Test func `a channel that was parked further on is not led back at the seam`() {
        var channel = Self.live(10)
        _ = channel.take(.answersOverflowed(Self.reader(20)))
        _ = channel.take(.due(log: Self.unknownLog))
        _ = channel.take(.boarded)
        #expect(channel.take(.reachedSeam(18)) == [.handOver, .tellCaughtUp])
        #expect(channel.since == 20 && channel.messagesSince == 20)
    }

    @Test func `a channel stands before a gap until its reader has read it`() {
        let channel = Self.catchingUp(from: 20)
        func view(_ frontier: UInt64, _ epoch: UInt64?) -> LogView {
            var reader = Self.reader(frontier, isLive: false)
            reader.epoch = epoch
            return LogView(reader: reader, liveFrontier: 40, epoch: epoch ?? 2)
        }
        #expect(channel.position(view(20, nil)) == Self.at(20), "the log goes on in another epoch there")
        #expect(channel.position(view(20, 2)) == Self.at(20, epoch: 2))
        // A catch-up pass that began earlier, in another epoch, has not reached the channel's position.
        #expect(channel.position(view(10, 0)) == Self.at(20))
        #expect(channel.position(view(25, 2)) == Self.at(25, epoch: 2))
    }

    // MARK: Holds

    @Test func `a channel whose socket is full waits in the log until it has drained`() {
        var channel = Self.live(10)
        let reader = Self.reader(20, toldAt: 17)
        #expect(channel.take(.socketFull(reader)) == [.park(Self.at(20))])
        #expect(channel.parkedAt == Self.at(20) && channel.toldAt == 17 && channel.reach(Self.view(nil)) == .offset(20))
        #expect(channel.take(.due(log: Self.unknownLog)) == [], "its socket is full")
        #expect(channel.take(.socketDrained) == [.goOn(Self.at(20))])
        #expect(channel.take(.due(log: Self.unknownLog)) == [.board(Self.at(20))])
    }

    @Test func `a channel is parked before the first change that waits for an answer`() {
        var channel = Self.live(10)
        let reader = Self.reader(20, firstHeld: 15)
        #expect(channel.take(.answersOverflowed(reader)) == [.park(Self.at(15)), .goOn(Self.at(15))])
        var early = Self.live(18)
        #expect(early.take(.answersOverflowed(reader)).first == .park(Self.at(18)), "its changes begin later")
    }

    @Test func `each hold must end before a channel goes on`() {
        var channel = Self.live(10)
        #expect(channel.take(.commitHidden(Self.reader(20))) == [.park(Self.at(20))])
        #expect(channel.take(.socketFull(nil)) == [])
        #expect(channel.take(.commitShown) == [])
        #expect(channel.take(.socketDrained) == [.goOn(Self.at(20))])
    }

    @Test func `a channel that cannot be parked is not held by a commit`() {
        var channel = Self.live(10)
        #expect(channel.take(.commitHidden(nil)) == [])
        #expect(channel.isServed && channel.holds.isEmpty)
        // A full socket holds the channel as soon as it is parked for another reason.
        #expect(channel.take(.socketFull(nil)) == [])
        #expect(channel.take(.answersOverflowed(Self.reader(20))) == [.park(Self.at(20))])
    }

    @Test func `a join is placed even while its socket is full`() {
        var channel = Self.joining()
        _ = channel.take(.asked(Self.at(5)))
        #expect(channel.take(.socketFull(nil)) == [])
        #expect(channel.take(.due(log: Self.log(0, 9))).last == .board(Self.at(5)), "its reply comes first")
    }

    @Test func `a channel that opened on a full socket is not placed`() {
        var channel = Self.joining()
        _ = channel.take(.asked(Self.at(5)))
        _ = channel.take(.due(log: Self.log(0, 9)))
        _ = channel.take(.passesFull)
        _ = channel.take(.opened(isSocketFull: true))
        #expect(channel.take(.due(log: Self.unknownLog)) == [])
        #expect(channel.take(.socketDrained) == [.goOn(Self.at(5))])
    }

    // MARK: Rows

    @Test func `a channel with rows is parked for them, and goes on from where they were read`() {
        var channel = Self.live(10, wantsRows: true)
        #expect(channel.awaitsRows)
        #expect(channel.take(.rowsDue(Self.reader(20))) == [.park(Self.at(20))])
        #expect(channel.take(.due(log: Self.unknownLog)) == [])
        let seen = SeenTransactions(visible: VisibleTransactions("10:12:")!, end: 99)
        #expect(channel.take(.rowsEnded(at: Self.at(18), seen: seen)) == [.leaveOutSeen, .goOn(Self.at(18))])
        #expect(channel.since == 20 && channel.floor == 18 && channel.seen == seen && channel.owesReport)
        #expect(channel.take(.rowsPassed) == [])
        #expect(channel.seen == nil && channel.floor == 0 && !channel.owesReport)
    }

    @Test func `rows that begin behind the parked position do not skip messages`() {
        var channel = Self.live(10, wantsRows: true)
        _ = channel.take(.rowsDue(Self.reader(20)))
        #expect(channel.take(.rowsEnded(at: Self.at(25), seen: nil)) == [.leaveOutSeen, .goOn(Self.at(20))])
        #expect(channel.floor == 25)
    }

    @Test func `a channel with other bindings is not told a position beyond what these have`() {
        for (rows, told) in [(18, 18), (25, 20)] as [(UInt64, UInt64)] {
            var channel = Self.live(10, wantsRows: true, hasOthers: true)
            _ = channel.take(.rowsDue(Self.reader(20)))
            #expect(channel.position(afterRowsAt: Self.at(rows)) == Self.at(told))
            _ = channel.take(.rowsEnded(at: Self.at(rows), seen: nil))
            #expect(channel.toldAt == told && channel.floor == rows)
        }
    }

    @Test func `a full socket holds the next rows, too`() {
        var channel = Self.live(10, wantsRows: true)
        _ = channel.take(.rowsDue(Self.reader(20)))
        #expect(channel.take(.socketFull(nil)) == [])
        #expect(channel.take(.socketDrained) == [.sendRows])
    }

    @Test func `rows that cannot be read are told, and the channel goes on from where it was`() {
        var channel = Self.live(10, wantsRows: true)
        _ = channel.take(.rowsDue(Self.reader(20)))
        #expect(channel.take(.rowsEnded(at: nil, seen: nil)) == [.goOn(Self.at(20))])
        #expect(channel.take(.rowsRefused(isPassing: true)) == [])
        #expect(!channel.awaitsRows && channel.owesReport, "a new join may get them")
    }

    @Test func `rows of a channel that cannot be parked are still wanted`() {
        var channel = Self.live(10, wantsRows: true)
        #expect(channel.take(.rowsDue(nil)) == [])
        #expect(channel.snapshot == .wanted && channel.isServed)
    }

    // MARK: Losses

    @Test func `a loss is told when the client knows of its channel, once in each pause`() {
        var channel = Self.joining()
        #expect(channel.take(.lossNoticed(.undecided)) == [])
        #expect(channel.owedLoss == .undecided && channel.owesLoss)
        _ = channel.take(.answered)
        #expect(channel.take(.owedLossDue) == [.countLoss, .tellLoss(.undecided)])
        #expect(channel.take(.owedLossDue) == [])
        #expect(channel.take(.lossNoticed(.gap)) == [.countLoss])
        #expect(channel.take(.lossPauseEnded) == [.tellLoss(.gap)])
        #expect(channel.take(.lossPauseEnded) == [])
        #expect(channel.take(.lossNoticed(.removed)) == [.countLoss, .tellLoss(.removed)])
        #expect(channel.take(.lossNoticed(.gap)) == [.countLoss])
        #expect(channel.take(.reportsDue) == [.tellLoss(.gap)], "before it hears that it has caught up")
    }

    @Test func `a new holder may lack rows that the former one received`() {
        var channel = Self.live(10, wantsRows: true)
        #expect(channel.take(.holderReplaced) == [])
        _ = channel.take(.rowsDue(Self.reader(20)))
        let seen = SeenTransactions(visible: VisibleTransactions("10:12:")!, end: 99)
        _ = channel.take(.rowsEnded(at: Self.at(18), seen: seen))
        #expect(channel.take(.holderReplaced) == [.countLoss, .tellLoss(.tokenChanged)])
    }

    // MARK: Ends

    @Test func `nothing counts as acknowledged beyond what was sent before the socket stopped taking data`() {
        var channel = Self.live(10)
        #expect(channel.acknowledged(20) == 20)
        _ = channel.take(.socketEnds(Self.view(Self.reader(20, firstHeld: 14)), acknowledged: 12))
        #expect(channel.acknowledged(20) == 14)
        #expect(channel.acknowledged(12) == 12)
        #expect(channel.acknowledged(nil) == nil)
    }

    @Test func `what was sent is frozen when the socket stops`() {
        var channel = Self.live(10)
        let view = Self.view(Self.reader(20))
        #expect(channel.sent(view, acknowledged: 12) == 20)
        _ = channel.take(.socketEnds(view, acknowledged: 12))
        #expect(channel.sent(Self.view(Self.reader(25)), acknowledged: 12) == 20)
    }

    @Test func `something on its way counts as not sent`() {
        var held = Self.reader(20, firstHeld: 15)
        let channel = Self.live(10)
        #expect(channel.sent(Self.view(held), acknowledged: 12) == 15)
        held.firstHeld = nil
        #expect(channel.sent(Self.view(held), acknowledged: 12) == 12)
        #expect(channel.sent(Self.view(held), acknowledged: 3) == 10, "nothing before its beginning is for it")
    }

    @Test func `a client that joins again on its socket has acknowledged no more than it was sent`() throws {
        let channel = Self.live(10)
        let left = try #require(channel.left(Self.view(Self.reader(20)), acknowledged: 25))
        #expect(left.sent == Self.at(20) && left.got == Self.at(20))
        #expect(Self.joining().left(Self.view(nil), acknowledged: 25) == nil, "it was sent nothing")
    }

    @Test func `a join that ends early keeps the position from which it was to resume`() {
        var channel = Self.joining()
        #expect(channel.kept(Self.view(nil, live: 9), acknowledged: 4) == nil, "it was promised nothing")
        _ = channel.take(.asked(Self.at(5, epoch: 7)))
        #expect(channel.kept(Self.view(nil), acknowledged: nil) == Self.at(5, epoch: 7))
        #expect(Self.live(10).kept(Self.view(Self.reader(20)), acknowledged: 14) == Self.at(14))
    }

    @Test func `a channel joined before the log had begun keeps a position outside every log`() {
        let channel = Self.live(0)
        let view = LogView(reader: nil, liveFrontier: 0, epoch: nil)
        #expect(channel.position(view) == nil && channel.standing(view).position == nil)
        #expect(channel.kept(view, acknowledged: 0) == Self.at(0, epoch: 0))
        #expect(channel.left(view, acknowledged: 0).map { $0.sent == Self.at(0, epoch: 0) } == true)
    }
}
