import Bytes
import TestSupport
import Testing

@testable import Channels

/// Socket's channel machine, to which a test passes client messages and decisions. The test checks the actions that it
/// returns.
final class Conversation {
    private var machine: ChannelMachine

    init(closesReplaced: Bool = true, channels: UInt32 = 10, waiting: UInt16 = 4, waitingBytes: UInt32 = 1000) {
        machine = ChannelMachine(
            ChannelLimits(maximumChannels: channels, maximumWaitingFrames: waiting, maximumWaitingBytes: waitingBytes),
            closesReplaced: closesReplaced)
    }

    func say(
        _ request: ChannelRequest, _ topic: String, joinRef: String = "", ref: String = "", token: String = "",
        whole: String = ""
    ) -> [ChannelAction] {
        var actions: [ChannelAction] = []
        let joined = machine.joined(Array(topic.utf8).span.bytes)
        machine.handle(
            ChannelFrame(
                request, topic: Array(topic.utf8).span.bytes, joinRef: Array(joinRef.utf8).span.bytes,
                ref: Array(ref.utf8).span.bytes, token: Array(token.utf8).span.bytes,
                whole: Array(whole.utf8).span.bytes),
            into: &actions)
        // The fast path must give the same result.
        if request == .push { #expect((actions == joined.map { [.push($0)] }) == (joined != nil)) }
        return actions
    }

    func succeed(_ id: ChannelID, token: String = "token") -> AcceptedJoin? {
        machine.joinSucceeded(id, token: Array(token.utf8).span.bytes)
    }

    func fail(_ id: ChannelID, _ reason: String = "no") -> [ChannelAction] {
        var actions: [ChannelAction] = []
        machine.joinFailed(id, reason: reason, into: &actions)
        return actions
    }

    func expel(_ id: ChannelID) -> [ChannelAction] {
        var actions: [ChannelAction] = []
        machine.expel(id, ChannelEnding(code: "Test", text: "over"), into: &actions)
        return actions
    }

    func crash(_ id: ChannelID) -> [ChannelAction] {
        var actions: [ChannelAction] = []
        machine.crash(id, into: &actions)
        return actions
    }

    func failRefresh(_ id: ChannelID, _ number: UInt16) -> [ChannelAction] {
        var actions: [ChannelAction] = []
        machine.refreshFailed(id, number: number, ChannelEnding(code: "Test", text: "bad token"), into: &actions)
        return actions
    }

    func goAway() -> [ChannelAction] {
        var actions: [ChannelAction] = []
        machine.socketGone(into: &actions)
        return actions
    }

    func shortWay(_ topic: String) -> ChannelID? { machine.joined(Array(topic.utf8).span.bytes) }

    var channelCount: Int { machine.channelCount }
    var capacity: Int { machine.capacity }
    var hasTriedToJoin: Bool { machine.hasTriedToJoin }
    var channels: [ChannelID] { machine.channels }
    func isOpen(_ id: ChannelID) -> Bool { machine.isOpen(id) }
    func address(of id: ChannelID) -> ChannelAddress? { machine.address(of: id) }
    func refreshSucceeded(_ id: ChannelID, number: UInt16) -> Bool { machine.refreshSucceeded(id, number: number) }

    /// Joins a topic, and accepts the join.
    func joined(_ topic: String, joinRef: String = "1", token: String = "token") -> ChannelID {
        let actions = say(.join, topic, joinRef: joinRef, ref: joinRef)
        guard case .startJoin(let id)? = actions.last else { preconditionFailure("a join was expected to start") }
        _ = succeed(id, token: token)
        return id
    }
}

func address(_ topic: String, _ joinRef: String = "", _ ref: String = "") -> ChannelAddress {
    ChannelAddress(topic: Array(topic.utf8), joinRef: Array(joinRef.utf8), ref: Array(ref.utf8))
}

func waiting(_ text: String) -> ChannelAction {
    .resume(WaitingFrame(bytes: Array(text.utf8), isBinary: false))
}

@Suite(.within(minutes: 5)) struct MachineTests {
    private let room = "realtime:room:1"
    private let first = ChannelID(slot: 0, incarnation: 1)
    private let second = ChannelID(slot: 0, incarnation: 2)

    // MARK: The socket's own topic, and topics nobody joined

    @Test func `trap 4: a heartbeat is answered with its ref, and with null, also during a join`() {
        let talk = Conversation()
        #expect(talk.say(.heartbeat, "phoenix", ref: "1") == [.heartbeat(ref: Array("1".utf8))])
        _ = talk.say(.join, room, joinRef: "2", ref: "2")
        #expect(talk.say(.heartbeat, "phoenix") == [.heartbeat(ref: [])])
    }

    @Test func `a push to a topic that is not joined is unmatched, without a join_ref`() {
        let talk = Conversation()
        for request in [ChannelRequest.push, .token, .noToken, .heartbeat] {
            #expect(
                talk.say(request, room, joinRef: "1", ref: "2") == [.replyUnmatched(address(room, "", "2"))])
        }
        #expect(talk.say(.push, "phoenix", ref: "2") == [.replyUnmatched(address("phoenix", "", "2"))])
    }

    @Test func `a push goes the short way only to what is joined`() {
        let socket = Conversation()
        _ = socket.say(.join, "realtime:a", joinRef: "1", ref: "1")
        let joining = socket.shortWay("realtime:a")
        #expect(joining == nil)
        let unknown = socket.shortWay("realtime:b")
        #expect(unknown == nil)
        let other = socket.joined("realtime:c", joinRef: "2")
        let found = socket.shortWay("realtime:c")
        #expect(found == other)
        _ = socket.say(.leave, "realtime:c", joinRef: "2", ref: "3")
        let left = socket.shortWay("realtime:c")
        #expect(left == nil)
    }

    @Test func `leaving what is not joined is fine`() {
        let talk = Conversation()
        #expect(talk.say(.leave, room, joinRef: "1", ref: "2") == [.replyOK(address(room, "", "2"))])
        #expect(talk.channelCount == 0 && !talk.hasTriedToJoin)
    }

    @Test func `only topics of realtime can be joined`() {
        let talk = Conversation()
        for topic in ["foo:bar", "phoenix", "realtime", "", "Realtime:x"] {
            #expect(talk.say(.join, topic, joinRef: "1", ref: "1") == [.replyUnmatched(address(topic, "", "1"))])
        }
        // The code that checks joins refuses a topic without a name with its own reason.
        #expect(talk.say(.join, "realtime:", joinRef: "1", ref: "1") == [.startJoin(first)])
    }

    // MARK: Joins

    @Test func `a join is checked, accepted and then open`() {
        let talk = Conversation()
        #expect(talk.say(.join, room, joinRef: "1", ref: "2") == [.startJoin(first)])
        #expect(!talk.isOpen(first))
        #expect(talk.succeed(first) == AcceptedJoin(address: address(room, "1", "2")))
        #expect(talk.isOpen(first))
        #expect(talk.address(of: first) == address(room, "1"))
        #expect(talk.say(.push, room, joinRef: "1", ref: "3") == [.push(first)])
    }

    @Test func `a join without a join_ref goes by its ref`() {
        let talk = Conversation()
        _ = talk.say(.join, room, ref: "5")
        #expect(talk.succeed(first) == AcceptedJoin(address: address(room, "5", "5")))
    }

    @Test func `a join that fails is answered and leaves nothing`() {
        let talk = Conversation()
        _ = talk.say(.join, room, joinRef: "1", ref: "1")
        #expect(talk.fail(first, "no") == [.refuseJoin(address(room, "1", "1"), reason: "no")])
        #expect(talk.channelCount == 0 && talk.hasTriedToJoin)
        #expect(talk.say(.push, room, ref: "2") == [.replyUnmatched(address(room, "", "2"))])
        #expect(talk.say(.join, room, joinRef: "3", ref: "3") == [.startJoin(second)])
    }

    @Test func `a stale or missing join_ref is no reason to drop a push`() {
        let talk = Conversation()
        let id = talk.joined(room, joinRef: "7")
        for joinRef in ["7", "6", ""] { #expect(talk.say(.push, room, joinRef: joinRef) == [.push(id)]) }
        #expect(talk.say(.heartbeat, room) == [.push(id)])
    }

    @Test func `channels of one socket do not know each other`() {
        let talk = Conversation()
        let one = talk.joined("realtime:a")
        let two = talk.joined("realtime:b", joinRef: "2")
        #expect(one != two)
        #expect(talk.say(.push, "realtime:a") == [.push(one)])
        #expect(talk.say(.push, "realtime:b") == [.push(two)])
        _ = talk.say(.leave, "realtime:a", joinRef: "1", ref: "3")
        #expect(talk.say(.push, "realtime:b") == [.push(two)])
        #expect(talk.channels == [two])
        // Another incarnation of the channel uses the slot again.
        let three = talk.joined("realtime:c", joinRef: "4")
        #expect(three.slot == one.slot && three.incarnation != one.incarnation)
    }

    @Test func `one channel more than allowed is refused`() {
        let talk = Conversation(channels: 2)
        let one = talk.joined("realtime:a")
        _ = talk.say(.join, "realtime:b", joinRef: "2", ref: "2")
        #expect(
            talk.say(.join, "realtime:c", joinRef: "3", ref: "4") == [
                .refuseSurplusJoin(address("realtime:c", "3", "4"))
            ])
        // A repeated join uses no additional slot.
        #expect(
            talk.say(.join, "realtime:a", joinRef: "5", ref: "5").last == .startJoin(.init(slot: 0, incarnation: 3)))
        #expect(one.slot == 0)
        _ = talk.say(.leave, "realtime:c", ref: "6")
        #expect(talk.channelCount == 2)
    }

    // MARK: Leaving

    @Test func `trap 7: a leave is answered and then closed with the join_ref`() {
        let talk = Conversation()
        let id = talk.joined(room, joinRef: "1")
        let told = address(room, "1", "9")
        #expect(talk.say(.leave, room, joinRef: "1", ref: "9") == [.stop(id, .left), .replyOK(told), .close(told)])
        #expect(talk.channelCount == 0)
        #expect(talk.say(.leave, room, ref: "10") == [.replyOK(address(room, "", "10"))])
    }

    @Test func `a leave of an earlier join is ignored, one without a join_ref is not`() {
        let talk = Conversation()
        let id = talk.joined(room, joinRef: "5")
        #expect(talk.say(.leave, room, joinRef: "4", ref: "9").isEmpty)
        #expect(talk.isOpen(id))
        let told = address(room, "5", "9")
        #expect(talk.say(.leave, room, ref: "9") == [.stop(id, .left), .replyOK(told), .close(told)])
    }

    // MARK: Replacement

    @Test func `trap 7: a second join is answered before the first one is closed`() {
        let talk = Conversation()
        let old = talk.joined(room, joinRef: "1")
        #expect(talk.say(.join, room, joinRef: "5", ref: "6") == [.stop(old, .replaced), .startJoin(second)])
        #expect(
            talk.succeed(second) == AcceptedJoin(address: address(room, "5", "6"), replaced: address(room, "1")))
        #expect(talk.say(.push, room) == [.push(second)])
        #expect(!talk.isOpen(old))
    }

    @Test func `trap 7: clients of version 1 are spared the close of what they replaced`() {
        let talk = Conversation(closesReplaced: false)
        _ = talk.joined(room, joinRef: "1")
        _ = talk.say(.join, room, joinRef: "5", ref: "5")
        #expect(talk.succeed(second) == AcceptedJoin(address: address(room, "5", "5")))
    }

    @Test func `a second join that fails has ended the first one too`() {
        let talk = Conversation()
        _ = talk.joined(room, joinRef: "1")
        _ = talk.say(.join, room, joinRef: "5", ref: "5")
        #expect(
            talk.fail(second) == [.refuseJoin(address(room, "5", "5"), reason: "no"), .close(address(room, "1"))])
        #expect(talk.channelCount == 0)
    }

    // MARK: Frames that come during a join

    @Test func `frames of a topic wait for its join and come back in order`() {
        let talk = Conversation()
        _ = talk.say(.join, room, joinRef: "1", ref: "1")
        #expect(talk.say(.push, room, whole: "a").isEmpty)
        #expect(talk.say(.token, room, token: "new", whole: "b").isEmpty)
        let other = talk.joined("realtime:b", joinRef: "2")
        #expect(talk.say(.push, "realtime:b") == [.push(other)])
        #expect(
            talk.succeed(first)
                == AcceptedJoin(address: address(room, "1", "1"), waiting: [waiting("a"), waiting("b")]))
    }

    @Test func `a leave during a join is heard after it`() {
        let talk = Conversation()
        _ = talk.say(.join, room, joinRef: "1", ref: "1")
        #expect(talk.say(.leave, room, joinRef: "1", ref: "2", whole: "leave").isEmpty)
        #expect(talk.succeed(first)?.waiting.last == waiting("leave"))
        let told = address(room, "1", "2")
        #expect(talk.say(.leave, room, joinRef: "1", ref: "2") == [.stop(first, .left), .replyOK(told), .close(told)])
    }

    @Test func `a leave during a join that fails is fine`() {
        let talk = Conversation()
        _ = talk.say(.join, room, joinRef: "1", ref: "1")
        _ = talk.say(.leave, room, joinRef: "1", ref: "2", whole: "leave")
        #expect(talk.fail(first) == [.refuseJoin(address(room, "1", "1"), reason: "no"), waiting("leave")])
        #expect(talk.say(.leave, room, joinRef: "1", ref: "2") == [.replyOK(address(room, "", "2"))])
    }

    @Test func `a join during a join waits, then replaces`() {
        let talk = Conversation()
        _ = talk.say(.join, room, joinRef: "1", ref: "1")
        #expect(talk.say(.join, room, joinRef: "2", ref: "2", whole: "again").isEmpty)
        #expect(talk.say(.push, room, whole: "push").isEmpty)
        #expect(talk.succeed(first)?.waiting == [waiting("again"), waiting("push")])
        // If the frames are returned in this order, the second join makes the push wait once more.
        #expect(
            talk.say(.join, room, joinRef: "2", ref: "2", whole: "again") == [
                .stop(first, .replaced), .startJoin(second),
            ])
        #expect(talk.say(.push, room, whole: "push").isEmpty)
        #expect(
            talk.succeed(second)
                == AcceptedJoin(
                    address: address(room, "2", "2"), replaced: address(room, "1"), waiting: [waiting("push")]))
    }

    @Test func `no more frames wait than are kept, and the count goes down again`() {
        let talk = Conversation(waiting: 2)
        _ = talk.say(.join, room, joinRef: "1", ref: "1")
        #expect(talk.say(.push, room, whole: "a").isEmpty)
        #expect(talk.say(.push, room, whole: "b").isEmpty)
        #expect(talk.say(.push, room, whole: "c") == [.tooManyWaiting])
        #expect(talk.succeed(first)?.waiting.count == 2)
        _ = talk.say(.join, "realtime:b", joinRef: "2", ref: "2")
        #expect(talk.say(.push, "realtime:b", whole: "a").isEmpty)
    }

    @Test func `no more bytes wait than are kept`() {
        let talk = Conversation(waitingBytes: 10)
        _ = talk.say(.join, room, joinRef: "1", ref: "1")
        #expect(talk.say(.push, room, whole: "12345678901") == [.tooManyWaiting])
        #expect(talk.say(.push, room, whole: "123456").isEmpty)
        #expect(talk.say(.push, room, whole: "12345") == [.tooManyWaiting])
        #expect(talk.say(.push, room, whole: "1234").isEmpty)
    }

    @Test func `what is told of a channel that has ended is nothing`() {
        let talk = Conversation()
        _ = talk.say(.join, room, joinRef: "1", ref: "1")
        _ = talk.crash(first)
        #expect(talk.succeed(first) == nil && talk.fail(first).isEmpty && talk.expel(first).isEmpty)
        #expect(talk.crash(first).isEmpty && talk.failRefresh(first, 0).isEmpty)
        #expect(talk.address(of: first) == nil)
        let id = talk.joined(room, joinRef: "2")
        #expect(talk.succeed(id) == nil && talk.fail(id).isEmpty)
        #expect(talk.address(of: ChannelID(slot: 99, incarnation: 1)) == nil)
    }

    // MARK: Tokens

    @Test func `trap 8: a new token is verified and never answered`() {
        let talk = Conversation()
        let id = talk.joined(room, token: "old")
        #expect(talk.say(.token, room, ref: "4", token: "new") == [.startRefresh(id, number: 1)])
        #expect(talk.refreshSucceeded(id, number: 1))
        #expect(talk.say(.token, room, token: "new").isEmpty)
        #expect(talk.say(.token, room, token: "old") == [.startRefresh(id, number: 2)])
    }

    @Test func `trap 20: null, an API key and the token the channel has are no news`() {
        let talk = Conversation()
        _ = talk.joined(room, token: "old")
        #expect(talk.say(.noToken, room).isEmpty)
        #expect(talk.say(.token, room, token: "sb_publishable_x").isEmpty)
        #expect(talk.say(.token, room, token: "sb_").isEmpty)
        #expect(talk.say(.token, room, token: "old").isEmpty)
    }

    @Test func `a bad token ends the channel and says why`() {
        let talk = Conversation()
        let id = talk.joined(room)
        let other = talk.joined("realtime:b", joinRef: "2")
        _ = talk.say(.token, room, token: "bad")
        #expect(
            talk.failRefresh(id, 1) == [
                .stop(id, .expelled(ChannelEnding(code: "Test", text: "bad token"))),
                .systemError(address(room, "1"), ChannelEnding(code: "Test", text: "bad token")),
                .close(address(room, "1")),
            ])
        #expect(talk.channels == [other])
    }

    @Test func `of two tokens the later one decides`() {
        let talk = Conversation()
        let id = talk.joined(room)
        #expect(talk.say(.token, room, token: "a") == [.startRefresh(id, number: 1)])
        #expect(talk.say(.token, room, token: "b") == [.startRefresh(id, number: 2)])
        #expect(talk.failRefresh(id, 1).isEmpty)
        #expect(!talk.refreshSucceeded(id, number: 1))
        #expect(talk.refreshSucceeded(id, number: 2))
    }

    // MARK: Ends

    @Test func `an expired channel is told and closed, and the others go on`() {
        let talk = Conversation()
        let id = talk.joined(room)
        let other = talk.joined("realtime:b", joinRef: "2")
        #expect(
            talk.expel(id) == [
                .stop(id, .expelled(ChannelEnding(code: "Test", text: "over"))),
                .systemError(address(room, "1"), ChannelEnding(code: "Test", text: "over")),
                .close(address(room, "1")),
            ])
        #expect(talk.say(.push, "realtime:b") == [.push(other)])
    }

    @Test func `a crash is an error on an open channel and a refusal of a join`() {
        let talk = Conversation()
        let id = talk.joined(room)
        #expect(talk.crash(id) == [.stop(id, .crashed), .fail(address(room, "1"))])
        _ = talk.say(.join, room, joinRef: "2", ref: "2")
        #expect(
            talk.crash(second) == [
                .stop(second, .crashed), .refuseJoin(address(room, "2", "2"), reason: "join crashed"),
            ])
    }

    @Test func `a socket that goes takes its channels along, joined or not`() {
        let talk = Conversation()
        let one = talk.joined(room)
        _ = talk.say(.join, "realtime:b", joinRef: "2", ref: "2")
        _ = talk.say(.push, "realtime:b", whole: "x")
        let two = ChannelID(slot: 1, incarnation: 2)
        #expect(talk.goAway() == [.stop(one, .socketGone), .stop(two, .socketGone)])
        #expect(talk.channelCount == 0)
        #expect(talk.succeed(two) == nil)
    }
}
