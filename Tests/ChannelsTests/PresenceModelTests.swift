import Bytes
import Foundation
import TestSupport
import Testing

@testable import Channels

/// Presence state as realtime-js, Supabase's JavaScript client, computes it from the messages that it receives.
private struct View {
    /// Refs and payloads by key.
    var metas: [String: [String: String]] = [:]

    typealias Metas = [String: [String: [[String: Any]]]]

    static func parse(_ text: String) throws -> Any {
        try JSONSerialization.jsonObject(with: Data(text.utf8))
    }

    static func read(_ object: Any?) throws -> [String: [String: String]] {
        let keys = try #require(object as? Metas)
        return try keys.mapValues { presence in
            var metas: [String: String] = [:]
            for meta in try #require(presence["metas"]) {
                metas[try #require(meta["phx_ref"] as? String)] = "\(try #require(meta["n"]))"
            }
            return metas
        }
    }

    mutating func sync(_ state: String) throws { metas = try Self.read(Self.parse(state)) }

    /// Applies joins first, then leaves; each must change the state.
    mutating func apply(_ diff: String) throws {
        let parts = try #require(try Self.parse(diff) as? [String: Any])
        for (key, joined) in try Self.read(parts["joins"]) {
            for (ref, payload) in joined {
                #expect(metas[key]?[ref] == nil, "told twice of \(ref)")
                metas[key, default: [:]][ref] = payload
            }
        }
        for (key, left) in try Self.read(parts["leaves"]) {
            for (ref, payload) in left {
                #expect(metas[key]?[ref] == payload, "told that somebody unknown left")
                metas[key]?[ref] = nil
            }
            if metas[key]?.isEmpty == true { metas[key] = nil }
        }
    }
}

/// Channel with its index, and the messages that were sent to it.
private struct Member {
    let loop: Int
    let topic: Int
    let key: String
    let place: TopicPlace
    let use: TopicID
    var view = View()
}

/// Loop with its topics, its replica of presence, and its unread mail by sender.
private final class Loop {
    let number: Int
    var topics = TopicTable<UInt64>(seed: 1)
    var book = PresenceBook(
        PresenceLimits(maximumTopics: 100, maximumMetasPerTopic: 100, maximumMetaBytes: 1000))
    var refs: PresenceRefs
    var mail: [[PresenceChange]]

    init(_ number: Int, of count: Int) {
        self.number = number
        refs = PresenceRefs(loop: UInt16(number), salt: 9)
        mail = Array(repeating: [], count: count)
    }

    func state(of topic: TopicName) -> String {
        var writer = ByteWriter()
        book.appendState(of: topic, to: &writer)
        return writer.bytes.text
    }
}

/// Loops with their channels, and the true presence state.
private struct World {
    static let names = [
        TopicName("a", isPrivate: false), TopicName("a", isPrivate: true), TopicName("b", isPrivate: false),
    ]

    let loops: [Loop]
    var random: SeededRandom
    var members: [UInt64: Member] = [:]
    /// Payload that each channel tracks now.
    var truth: [UInt64: (ref: PresenceRef, payload: Int)] = [:]
    var lastChannel: UInt64 = 0
    var time: UInt64 = 1000

    init(seed: Seed) {
        random = SeededRandom(seed: seed)
        let count = Int.random(in: 1...4, using: &random)
        loops = (0..<count).map { Loop($0, of: count) }
    }

    mutating func step() throws {
        time += UInt64.random(in: 0...2, using: &random)
        switch Int.random(in: 0..<20, using: &random) {
        case 0..<3: try join()
        case 3: if let channel = anybody() { leave(channel) }
        case 4..<9: if let channel = anybody() { try track(channel) }
        case 9..<11: if let channel = anybody() { untrack(channel) }
        case 11..<16: readMail(random.pick(loops), from: random.pick(loops))
        default: try endTurn(random.pick(loops))
        }
    }

    private mutating func anybody() -> UInt64? { members.keys.sorted().randomElement(using: &random) }

    private mutating func join() throws {
        lastChannel += 1
        let loop = random.pick(loops)
        let topic = Int.random(in: 0..<Self.names.count, using: &random)
        let name = Self.names[topic]
        let use = loop.topics.join(name.subTopic, isPrivate: name.isPrivate)
        let place = loop.topics.add(lastChannel, to: use)
        var member = Member(
            loop: loop.number, topic: topic, key: "user-\(Int.random(in: 0..<4, using: &random))", place: place,
            use: use)
        try member.view.sync(loop.state(of: name))
        members[lastChannel] = member
    }

    /// Ends a channel, like a leave or the end of its socket.
    private mutating func leave(_ channel: UInt64) {
        untrack(channel)
        guard let member = members.removeValue(forKey: channel) else { return }
        loops[member.loop].topics.remove(member.place)
        loops[member.loop].topics.leave(member.use)
    }

    private mutating func track(_ channel: UInt64) throws {
        guard let member = members[channel] else { return }
        let loop = loops[member.loop]
        let payload = Int.random(in: 0..<3, using: &random)
        let change = try loop.book.track(
            PresenceTracker(loop: UInt16(loop.number), channel: channel), in: Self.names[member.topic],
            key: Array(member.key.utf8).span.bytes, payload: Array("{\"n\": \(payload)}".utf8).span.bytes,
            ref: loop.refs.next(at: time))
        #expect((change == nil) == (truth[channel]?.payload == payload))
        guard let joined = change?.joined else { return }
        truth[channel] = (joined.ref, payload)
        send(change, from: loop)
    }

    private mutating func untrack(_ channel: UInt64) {
        guard let member = members[channel] else { return }
        let loop = loops[member.loop]
        let change = loop.book.untrack(PresenceTracker(loop: UInt16(loop.number), channel: channel))
        #expect((change == nil) == (truth.removeValue(forKey: channel) == nil))
        send(change, from: loop)
    }

    private func send(_ change: PresenceChange?, from loop: Loop) {
        guard let change else { return }
        for other in loops where other !== loop { other.mail[loop.number].append(change) }
    }

    /// Delivers some mail from one loop to another in order. Sometimes delivers the last message twice.
    private mutating func readMail(_ reader: Loop, from sender: Loop) {
        let count = Int.random(in: 0...reader.mail[sender.number].count, using: &random)
        for change in reader.mail[sender.number].prefix(count) {
            reader.book.apply(change)
            if random.next() % 8 == 0 { reader.book.apply(change) }
        }
        reader.mail[sender.number].removeFirst(count)
    }

    private mutating func endTurn(_ loop: Loop) throws {
        var writer = ByteWriter()
        while let name = loop.book.takeDiff(into: &writer, isWanted: { loop.topics.find($0) != nil }) {
            let diff = writer.bytes.text
            writer.removeAll()
            guard let topic = loop.topics.find(name) else { continue }
            for one in loop.topics.members(of: topic) { try members[one.member]?.view.apply(diff) }
        }
    }

    mutating func comeToRest() throws {
        for loop in loops {
            for sender in loops.indices {
                for change in loop.mail[sender] { loop.book.apply(change) }
                loop.mail[sender] = []
            }
            try endTurn(loop)
        }
    }

    /// Expected state, computed without the code under test.
    private func expected(_ topic: Int) -> (text: String, view: [String: [String: String]]) {
        let present = truth.filter { members[$0.key]?.topic == topic }
            .map { (key: members[$0.key]?.key ?? "", ref: $0.value.ref, payload: $0.value.payload) }
        let keys = Dictionary(grouping: present, by: \.key)
        let text = keys.keys.sorted().map { key in
            let metas = (keys[key] ?? []).sorted { $0.ref < $1.ref }.map { (ref: $0.ref.text, payload: $0.payload) }
            return (key, metas)
        }
        let view = Dictionary(
            uniqueKeysWithValues: text.map { key, metas in
                (key, Dictionary(uniqueKeysWithValues: metas.map { ($0.ref, "\($0.payload)") }))
            })
        return (text.map { "\($0.0)=\($0.1.map(\.ref).joined(separator: ","))" }.joined(separator: ";"), view)
    }

    /// Returns keys and refs of a state, in their order.
    private func outline(_ state: String) -> String {
        state.matches(of: /"(user-\d)":\{"metas":\[([^\]]*)\]/).map { match in
            "\(match.1)=" + match.2.matches(of: /"phx_ref":"([^"]+)"/).map { String($0.1) }.joined(separator: ",")
        }.joined(separator: ";")
    }

    func check() {
        for (topic, name) in Self.names.enumerated() {
            let expected = expected(topic)
            let states = Set(loops.map { $0.state(of: name) })
            #expect(states.count == 1, "replicas differ")
            #expect(outline(states.first ?? "") == expected.text)
            for (channel, member) in members where member.topic == topic {
                #expect(member.view.metas == expected.view, "what channel \(channel) sees")
            }
        }
        for loop in loops {
            #expect(loop.book.trackerCount == truth.count && !loop.book.hasDiffs)
        }
    }
}

@Suite(.within(minutes: 5)) struct PresenceModelTests {
    /// Checks joins, leaves, tracks and untracks on one to four loops. The mail between loops arrives at random times.
    @Test(arguments: seeds(40))
    func `when it is quiet, all replicas and all members' views are what is true`(seed: Seed) throws {
        var world = World(seed: seed)
        for _ in 0..<6 {
            for _ in 0..<150 { try world.step() }
            try world.comeToRest()
            world.check()
        }
    }
}
