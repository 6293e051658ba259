import Bytes
import TestSupport
import Testing

@testable import Channels

/// Presence of one loop, for a test that passes events to it.
final class PresenceStage {
    var book: PresenceBook
    private var refs: PresenceRefs
    private let loop: UInt16

    init(loop: UInt16 = 1, topics: Int = 10, metas: Int = 10, bytes: Int = 100) {
        book = PresenceBook(
            PresenceLimits(maximumTopics: topics, maximumMetasPerTopic: metas, maximumMetaBytes: bytes))
        refs = PresenceRefs(loop: loop, salt: 0)
        self.loop = loop
    }

    func track(
        _ channel: UInt64, _ payload: String, topic: String = "room", key: String = "k", at time: UInt64 = 1
    ) throws(PresenceRefusal) -> PresenceChange? {
        try book.track(
            PresenceTracker(loop: loop, channel: channel), in: TopicName(topic, isPrivate: false),
            key: Array(key.utf8).span.bytes, payload: Array(payload.utf8).span.bytes, ref: refs.next(at: time))
    }

    func untrack(_ channel: UInt64) -> PresenceChange? {
        book.untrack(PresenceTracker(loop: loop, channel: channel))
    }

    func state(_ topic: String = "room") -> String {
        var writer = ByteWriter()
        book.appendState(of: TopicName(topic, isPrivate: false), to: &writer)
        return writer.bytes.text
    }

    func diff() -> String? {
        var writer = ByteWriter()
        guard book.takeDiff(into: &writer) != nil else { return nil }
        return writer.bytes.text
    }
}

@Suite(.within(minutes: 5)) struct PresenceTests {
    @Test func `who tracks is in the difference, then in the state`() throws {
        let stage = PresenceStage()
        let change = try #require(try stage.track(1, #"{ "name" : "C", "at": [1, {"x": null}] }"#, key: "user \"19\""))
        let ref = try #require(change.joined).ref.text
        let metas = #"{"user \"19\"":{"metas":[{"phx_ref":"\#(ref)","name":"C","at":[1,{"x":null}]}]}}"#
        #expect(stage.state() == "{}")
        #expect(stage.diff() == #"{"joins":\#(metas),"leaves":{}}"#)
        #expect(stage.diff() == nil && stage.state() == metas && change.left == nil)
    }

    @Test func `leaving shows what was tracked last`() throws {
        let stage = PresenceStage()
        let ref = try #require(try stage.track(1, "{}")?.joined).ref.text
        _ = stage.diff()
        let change = try #require(stage.untrack(1))
        #expect(stage.diff() == #"{"joins":{},"leaves":{"k":{"metas":[{"phx_ref":"\#(ref)"}]}}}"#)
        #expect(change.joined == nil && change.left?.ref.text == ref && stage.state() == "{}")
        #expect(stage.untrack(1) == nil && stage.diff() == nil)
        let topics = stage.book.topicCount
        #expect(topics == 0)
    }

    @Test func `an update is one difference with both, and names the one before`() throws {
        let stage = PresenceStage()
        let old = try #require(try stage.track(1, #"{"n":1}"#)?.joined).ref.text
        _ = stage.diff()
        let change = try #require(try stage.track(1, #"{"n":2}"#))
        let new = try #require(change.joined).ref.text
        let meta = #"{"k":{"metas":[{"phx_ref":"\#(new)","phx_ref_prev":"\#(old)","n":2}]}}"#
        #expect(
            stage.diff() == #"{"joins":\#(meta),"leaves":{"k":{"metas":[{"phx_ref":"\#(old)","n":1}]}}}"#)
        #expect(stage.state() == meta && change.left?.ref.text == old)
    }

    @Test func `the same payload again changes nothing`() throws {
        let stage = PresenceStage()
        _ = try stage.track(1, #"{"n":1,"t":"a b"}"#)
        #expect(try stage.track(1, #"{ "n": 1, "t": "a b" }"#) == nil)
        #expect(try stage.track(1, #"{"n":1,"t":"ab"}"#) != nil)
    }

    @Test func `what a client calls phx_ref is not taken for one`() throws {
        let stage = PresenceStage()
        let change = try stage.track(1, #"{"phx_ref":"mine","a":{"phx_ref":1},"\u0070hx_ref_prev":[2],"b":1}"#)
        let meta = try #require(change?.joined)
        #expect(
            String(decoding: meta.json, as: UTF8.self)
                == #"{"phx_ref":"\#(meta.ref.text)","a":{"phx_ref":1},"b":1}"#)
        var payload = ByteWriter()
        meta.appendPayload(to: &payload)
        #expect(payload.bytes.text == #"{"a":{"phx_ref":1},"b":1}"#)
    }

    @Test func `several channels with one key are several metas of it`() throws {
        let stage = PresenceStage()
        for channel in 1...3 as ClosedRange<UInt64> {
            _ = try stage.track(channel, #"{"c":\#(channel)}"#, key: channel == 2 ? "a" : "b")
        }
        let refs = stage.book.changes(of: 1).sorted { $0.tracker.channel < $1.tracker.channel }.map { change in
            change.joined?.ref.text ?? ""
        }
        _ = stage.diff()
        #expect(
            stage.state()
                == #"{"a":{"metas":[{"phx_ref":"\#(refs[1])","c":2}]},"b":{"metas":[{"phx_ref":"\#(refs[0])","c":1},"#
                + #"{"phx_ref":"\#(refs[2])","c":3}]}}"#)
    }

    @Test func `what came and went within a turn is told as both, and is not there`() throws {
        let stage = PresenceStage()
        let ref = try #require(try stage.track(1, "{}")?.joined).ref.text
        _ = stage.untrack(1)
        let metas = #"{"k":{"metas":[{"phx_ref":"\#(ref)"}]}}"#
        #expect(stage.state() == "{}" && stage.diff() == #"{"joins":\#(metas),"leaves":\#(metas)}"#)
        #expect(stage.state() == "{}" && stage.diff() == nil)
    }

    @Test func `a state is what members were told, so that the next difference fits it`() throws {
        let stage = PresenceStage()
        _ = try stage.track(1, "{}", key: "a")
        _ = stage.diff()
        let before = stage.state()
        _ = stage.untrack(1)
        _ = try stage.track(2, "{}", key: "b")
        #expect(stage.state() == before && before.hasPrefix(#"{"a":"#))
        _ = stage.diff()
        #expect(stage.state().hasPrefix(#"{"b":"#))
    }

    @Test func `what is too much is refused and changes nothing`() throws {
        let stage = PresenceStage(topics: 2, metas: 2, bytes: 12)
        _ = try stage.track(1, #"{ "a": 1 }"#)
        _ = try stage.track(2, "{}")
        #expect(throws: PresenceRefusal.topicFull) { try stage.track(3, "{}") }
        #expect(throws: PresenceRefusal.tooLarge) { try stage.track(1, #"{"abcdefghij":1}"#) }
        #expect(throws: PresenceRefusal.notAnObject) { try stage.track(1, "[]") }
        #expect(throws: PresenceRefusal.notAnObject) { try stage.track(1, "{} {}") }
        #expect(throws: PresenceRefusal.notAnObject) { try stage.track(1, #"{"a":"#) }
        _ = try stage.track(4, "{}", topic: "other")
        #expect(throws: PresenceRefusal.tooManyTopics) { try stage.track(5, "{}", topic: "third") }
        #expect(try stage.track(1, #"{"a":2}"#) != nil)
        let counts = (stage.book.trackerCount, stage.book.count(in: TopicName("room", isPrivate: false)))
        #expect(counts == (3, 2))
    }

    @Test func `other loops are never refused, and saying a thing twice changes nothing`() throws {
        let there = PresenceStage(loop: 1)
        let here = PresenceStage(loop: 2, topics: 0, metas: 0, bytes: 0)
        let joined = try #require(try there.track(1, "{}"))
        here.book.apply(joined)
        here.book.apply(joined)
        _ = there.diff()
        _ = here.diff()
        #expect(here.state() == there.state() && here.diff() == nil)
        let left = try #require(there.untrack(1))
        here.book.apply(left)
        here.book.apply(left)
        #expect(here.diff() == there.diff() && here.diff() == nil && here.state() == "{}")
    }

    @Test func `a loop that comes late is told what is there`() throws {
        let there = PresenceStage(loop: 1)
        for channel in 0..<5 as Range<UInt64> { _ = try there.track(channel, "{}", key: "\(channel % 2)") }
        _ = there.untrack(3)
        _ = there.diff()
        let here = PresenceStage(loop: 2)
        for change in there.book.changes(of: 1) { here.book.apply(change) }
        _ = here.diff()
        #expect(here.state() == there.state() && there.state().contains("phx_ref"))
        let foreign = here.book.changes(of: 2)
        #expect(foreign.isEmpty)
    }

    @Test func `a loop that comes late is told in the order in which it was tracked`() throws {
        let there = PresenceStage(loop: 1)
        for channel in [7, 3, 9, 1, 5, 8, 2] as [UInt64] { _ = try there.track(channel, "{}", key: "k") }
        #expect(there.book.changes(of: 1).map(\.tracker.channel) == [7, 3, 9, 1, 5, 8, 2])
    }

    @Test func `differences nobody waits for are not written`() throws {
        let stage = PresenceStage()
        _ = try stage.track(1, "{}", topic: "a")
        _ = try stage.track(2, "{}", topic: "b")
        var writer = ByteWriter()
        let wanted = stage.book.takeDiff(into: &writer) { $0.full == Array("realtime:a".utf8) }
        let more = stage.book.takeDiff(into: &writer) { _ in false }
        #expect(wanted == TopicName("a", isPrivate: false) && more == nil && !writer.bytes.text.contains("}}{"))
        #expect(stage.state("b").contains("phx_ref"))
    }

    @Test func `refs are sixteen digits, all different, and grow also when the clock does not`() throws {
        var refs = PresenceRefs(loop: 3)
        var others = PresenceRefs(loop: 4)
        var last: PresenceRef?
        var seen: Set<String> = []
        let digits = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
        for time in [5, 5, 4, 1, 1_767_225_600_000, 1_767_225_600_000, 9] as [UInt64] {
            let ref = refs.next(at: time)
            let other = others.next(at: time)
            #expect(ref.text.count == 16 && ref.text.allSatisfy { digits.contains($0) })
            #expect(last.map { $0 < ref } ?? true)
            #expect(seen.insert(ref.text).inserted)
            #expect(seen.insert(other.text).inserted)
            last = ref
        }
    }

    @Test func `a ref's digits are its twelve bytes`() {
        let ref = PresenceRef(time: 0x0001_0203_0405_0607, origin: 0x0809_0a0b)
        #expect(ref.text == "AAECAwQFBgcICQoL")
    }
}
