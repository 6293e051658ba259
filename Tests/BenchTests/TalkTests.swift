import Bytes
import TestSupport
import Testing

@testable import Bench

/// Twelve users. Each has its own channel and one channel that it shares with five others.
private struct Talkers {
    static let users = 12
    let topics = [ClientText("realtime:echo:{n}"), ClientText("realtime:room:{n/6}")]
    var talk: Talk

    init(interval: Int = 1000, count: Int = 2, first: Int = 1) {
        let order = Talk.Order(
            bytes: 200, intervalMicroseconds: interval, count: count, speakers: Self.users, groups: [1, 6])
        talk = Talk(order, clients: Self.users, first: first, monotonic: 1_000_000, unixMicroseconds: 5_000_000)
    }

    /// Returns the frame that a hub makes of a pushed message: kind 4, with the same topic, event and payload.
    func heard(_ turn: Talk.Turn) -> [UInt8] {
        var writer = ByteWriter()
        talk.append(turn, topics[turn.channel], number: turn.speaker, to: &writer)
        let said = writer.copied()
        let start = 7 + Int(said[1]) + Int(said[2])
        return [4, said[3], said[4], 0, said[6]] + said[start...]
    }

    mutating func hear(_ user: Int, _ bytes: [UInt8]) -> Talk.Verdict {
        var scratch = ByteWriter()
        return talk.hear(user, bytes.span.bytes, topics: topics, firstNumber: 0, scratch: &scratch)
    }

    mutating func allTurns() -> [Talk.Turn] {
        var turns: [Talk.Turn] = []
        while let turn = talk.nextTurn(at: .max) { turns.append(turn) }
        return turns
    }

    static func hearers(_ turn: Talk.Turn) -> Range<Int> {
        turn.channel == 0 ? turn.speaker..<turn.speaker + 1 : turn.speaker / 6 * 6..<turn.speaker / 6 * 6 + 6
    }
}

@Suite(.within(minutes: 10)) struct TalkTests {
    @Test func `everybody says as much, and everything has its hearers`() {
        var talkers = Talkers()
        let turns = talkers.allTurns()
        #expect(turns.count == talkers.talk.total && turns.count == 48)
        for user in 0..<Talkers.users {
            for channel in 0..<2 {
                let own = turns.filter { $0.speaker == user && $0.channel == channel }
                #expect(own.map(\.number) == [1, 2])
            }
        }
        var inPlace = 0
        for turn in turns {
            for user in Talkers.hearers(turn) {
                guard case .inPlace(let message) = talkers.hear(user, talkers.heard(turn)) else { continue }
                #expect(message.speaker == turn.speaker && message.dueMicroseconds == turn.dueMicroseconds)
                inPlace += 1
            }
        }
        #expect(inPlace == talkers.talk.expected && inPlace == 168)
    }

    @Test func `moments are even, and nobody speaks behind another of its channel`() {
        var talkers = Talkers(interval: 2400)
        #expect(talkers.talk.nextTurn(at: 999_999) == nil)
        let turns = talkers.allTurns()
        let gaps = Set(zip(turns, turns.dropFirst()).map { $1.dueMicroseconds - $0.dueMicroseconds })
        #expect(gaps == [100])
        let pairs = zip(turns, turns.dropFirst())
        #expect(pairs.allSatisfy { $0.channel != $1.channel || $0.speaker / 6 != $1.speaker / 6 })
    }

    @Test func `notices what is missing, doubled, another's or spoilt`() {
        var talkers = Talkers(count: 4)
        let turns = talkers.allTurns().filter { $0.speaker == 7 && $0.channel == 1 }
        let bytes = turns.map(talkers.heard)
        guard case .inPlace = talkers.hear(8, bytes[0]) else {
            return #expect(Bool(false), "the first is in its place")
        }
        #expect(talkers.hear(8, bytes[0]) == .again)
        guard case .passedOver(1, _) = talkers.hear(8, bytes[2]) else {
            return #expect(Bool(false), "the second is missing")
        }
        #expect(talkers.hear(8, bytes[1]) == .again)
        #expect(talkers.hear(5, bytes[3]) == .foreign)
        // The message belongs to the user's own channel, but has another user's topic.
        let own = talkers.heard(Talk.Turn(speaker: 3, channel: 0, number: 1, dueMicroseconds: 1))
        #expect(talkers.hear(4, own) == .foreign)
        for spoilt in [[], [4], Array(bytes[3].dropLast()), Array(bytes[3].dropLast(3)) + Array("?\"}".utf8)] {
            #expect(talkers.hear(8, spoilt) == .malformed)
        }
        var wrongTopic = bytes[3]
        wrongTopic[5] = UInt8(ascii: "R")
        #expect(talkers.hear(8, wrongTopic) == .foreign)
    }

    @Test func `who answers says the next when its own came back, until all is said`() {
        var talkers = Talkers(interval: 0, count: 2, first: 11)
        let first = talkers.allTurns()
        #expect(first.count == 24 && first.allSatisfy { $0.number == 11 })
        let message = Talk.Message(speaker: 3, channel: 1, number: 11, dueMicroseconds: 5)
        let next = talkers.talk.answer(to: message, at: 77)
        #expect(next?.number == 12 && next?.speaker == 3 && next?.channel == 1 && next?.dueMicroseconds == 77)
        let last = Talk.Message(speaker: 3, channel: 1, number: 12, dueMicroseconds: 5)
        let none = talkers.talk.answer(to: last, at: 78)
        #expect(none == nil)
    }

    @Test func `a bare server's copy of a message is found by its number`() {
        let talkers = Talkers()
        let bytes = talkers.heard(Talk.Turn(speaker: 3, channel: 1, number: 9, dueMicroseconds: 1_767_225_600_000_000))
        let template = ChangeTemplate(ChangeTemplate.text(of: String(decoding: bytes, as: UTF8.self)))
        #expect(template.isBinary)
        var writer = ByteWriter()
        template.append(sequence: 12345, at: 1_767_225_600_000_001, to: &writer)
        var hint = Hint()
        let message = ServerMessage(writer.bytes, hint: &hint)
        #expect(message == .change(sequence: 12345, sentMicroseconds: 1_767_225_600_000_001, owner: nil))
    }
}

@Suite(.within(minutes: 10)) struct PresenceWatchTests {
    private func watch(_ clients: Int = 3) -> PresenceWatch {
        var watch = PresenceWatch(ClientText("user-{n}"), clients: 0..<clients)
        for client in 0..<clients { watch.expect(client) }
        watch.settle(watching: clients)
        return watch
    }

    private func metas(_ users: [Int], ref: String = "r") -> String {
        "{" + users.map { #""user-\#($0)":{"metas":[{"phx_ref":"\#(ref)\#($0)","name":"x"}]}"# }.joined(separator: ",")
            + "}"
    }

    private func difference(joins: [Int] = [], leaves: [Int] = [], ref: String = "r") -> [UInt8] {
        Array(#"{"joins":\#(metas(joins, ref: ref)),"leaves":\#(metas(leaves, ref: ref))}"#.utf8)
    }

    @Test func `views are right when all have what should be there`() {
        var watch = watch()
        #expect(!watch.isSettled)
        for client in 0..<3 {
            let ones = watch.see(client, .difference, difference(joins: [0, 1]).span.bytes)
            let other = watch.see(client, .difference, difference(joins: [2]).span.bytes)
            #expect(ones && other)
            #expect(watch.isSettled == (client == 2) && watch.unsettled == 2 - client)
        }
        #expect(watch.differing == 0)
        watch.expectNoMore(2)
        watch.settle(watching: 2)
        #expect(!watch.isSettled)
        for client in 0..<2 { _ = watch.see(client, .difference, difference(leaves: [2]).span.bytes) }
        #expect(watch.isSettled)
    }

    @Test func `a state takes the place of what was seen before`() {
        var watch = watch(2)
        for client in 0..<2 {
            _ = watch.see(client, .difference, difference(joins: [0]).span.bytes)
            _ = watch.see(client, .state, Array(metas([0, 1]).utf8).span.bytes)
        }
        #expect(watch.isSettled)
    }

    @Test func `what comes twice, is another's or has another ref is noticed`() {
        var watch = watch(2)
        for client in 0..<2 { _ = watch.see(client, .difference, difference(joins: [0, 1]).span.bytes) }
        #expect(watch.isSettled)
        _ = watch.see(1, .difference, difference(joins: [1]).span.bytes)
        #expect(watch.unsettled == 1)
        _ = watch.see(1, .difference, difference(leaves: [1], ref: "s").span.bytes)
        #expect(watch.isSettled && watch.differing == 1)
        let unread = ["", "{", "[]", #"{"joins":[]}"#].map { watch.see(0, .difference, Array($0.utf8).span.bytes) }
        #expect(unread == [false, false, false, false])
    }
}
