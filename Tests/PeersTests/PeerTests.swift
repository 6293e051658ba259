import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Protocol
import TestSupport
import Testing

@testable import Peers

/// Tests of what the nodes of a cluster tell each other besides the log.
@Suite(.within(minutes: 5)) struct PeerTests {
    /// Node whose channels track presences at random.
    private struct Node: ~Copyable {
        var book = PresenceBook(
            PresenceLimits(maximumTopics: 10, maximumMetasPerTopic: 100, maximumMetaBytes: 1_000))
        private var refs = PresenceRefs(loop: 1, salt: 2)
        var present: [PresenceTracker: PresenceChange] = [:]

        mutating func change(_ random: inout SeededRandom) throws -> PresenceChange? {
            let tracker = PresenceTracker(loop: UInt16(random.next() % 2), channel: random.next() % 6)
            let topic = TopicName("room\(random.next() % 3)", isPrivate: random.next() % 2 == 0)
            let change =
                if random.next() % 3 == 0 {
                    book.untrack(tracker)
                } else if book.isTracking(tracker) {
                    nil as PresenceChange?
                } else {
                    try book.track(
                        tracker, in: topic, key: Array("ké\(tracker.channel)".utf8).rawBytes,
                        payload: Array("{\"n\":\(random.next() % 9)}".utf8).rawBytes,
                        ref: refs.next(at: random.next() % 1_000))
                }
            if let change { present[change.tracker] = change.joined == nil ? nil : change }
            return change
        }
    }

    /// Returns changes as they arrive in a letter.
    private func sent(_ changes: [PresenceChange]) throws -> [PresenceChange] {
        var writer = ByteWriter()
        PresenceChange.append(changes, to: &writer)
        var reader = ByteReader(writer.bytes)
        let arrived = PresenceChange.list(&reader)
        return try #require(arrived)
    }

    @Test(arguments: seeds(60)) func `whatever letters are lost, a node's presences are known in the end`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        var node = Node()
        var peer = PeerPresence(base: 512)
        /// Presences as the loops of the other node have them.
        var shown: Set<String> = []
        func show(_ changes: [PresenceChange]) {
            for change in changes {
                #expect(change.tracker.loop >= 512, "no loop of this node's own")
                let name = "\(change.tracker.loop) \(change.tracker.channel)"
                if let joined = change.joined {
                    shown = shown.filter { !$0.hasPrefix(name + " ") }
                    shown.insert("\(name) \(change.topic.full) \(joined.ref.text)")
                } else {
                    let before = shown.count
                    shown = shown.filter { !$0.hasPrefix(name + " ") }
                    #expect(shown.count == before - 1, "somebody leaves who was not there")
                }
            }
        }
        var number: UInt64 = 0
        func answer(_ node: borrowing Node) throws {
            let all = try sent(Array(node.present.values))
            let half = all.count / 2
            if random.next() % 4 == 0 {
                show(peer.replace(Array(all[..<half]), part: 0, of: 2, number: number))
                // The second part is lost now and then.
                if random.next() % 3 == 0 { return }
                show(peer.replace(Array(all[half...]), part: 1, of: 2, number: number))
            } else {
                show(peer.replace(all, part: 0, of: 1, number: number))
            }
        }
        for _ in 0..<60 {
            guard let change = try node.change(&random) else { continue }
            number += 1
            if random.next() % 4 == 0 { continue }
            if let news = peer.apply(try sent([change]), number: number) { show(news) } else { try answer(node) }
        }
        while peer.isMissing(upTo: number) { try answer(node) }
        let expected = Set(
            node.present.values.map {
                "\($0.tracker.loop + 512) \($0.tracker.channel) \($0.topic.full) \($0.joined?.ref.text ?? "")"
            })
        #expect(shown == expected)
        // A node that is silent for too long takes its members with it.
        show(peer.leave())
        #expect(shown.isEmpty)
    }

    @Test(arguments: [1, PeerLetter.sliceBytes, PeerLetter.sliceBytes + 1, 5 * PeerLetter.sliceBytes + 7])
    func `a letter of any size arrives, or not at all if a part of it is lost`(bytes: Int) {
        let letter = (0..<bytes).map { UInt8(truncatingIfNeeded: $0 / 1_000) }
        let parts = PeerLetter.sendable(letter, from: 5)
        guard bytes > PeerLetter.sliceBytes else { return #expect(parts == [letter]) }
        #expect(parts.allSatisfy { $0.count < 1 << 20 && PeerLetter.head($0)?.kind == .slice })
        var receiver = SlicedLetter()
        for lost in parts.indices {
            for part in parts.indices where part != lost {
                let whole = receiver.take(parts[part])
                #expect(whole == nil)
            }
        }
        // The beginning of one letter and the end of another are no letter.
        let other = PeerLetter.sendable(letter, from: 5)
        let mixed = (parts.dropLast() + other.dropFirst()).compactMap { receiver.take($0) }
        #expect(mixed.isEmpty)
        let arrived = parts.compactMap { receiver.take($0) }
        #expect(arrived == [letter])
    }

    @Test func `broadcasts arrive as they were sent, and a letter that is cut off is refused`() throws {
        var gathering = BroadcastGathering()
        for form in [BroadcastForm.text, .json, .binary, .batch] {
            gathering.add(
                Broadcast(
                    form, event: Array("ev".utf8).rawBytes, payload: Array("{\"a\":1}".utf8).rawBytes,
                    id: Array("id".utf8).rawBytes), topic: Array("room".utf8).rawBytes, isPrivate: form == .json)
        }
        let taken = gathering.take()
        let batch = try #require(taken)
        var writer = ByteWriter()
        batch.append(to: &writer)
        let bytes = writer.copied()
        var reader = ByteReader(bytes.rawBytes)
        let read = TurnBroadcasts(&reader)
        let arrived = try #require(read)
        #expect(arrived.entries.map(\.isPrivate) == [false, true, false, false])
        for entry in arrived.entries {
            arrived.read(entry) { topic, broadcast in
                #expect(topic.text == "room" && broadcast.event.text == "ev" && broadcast.id.text == "id")
                #expect(broadcast.payload.text == "{\"a\":1}")
            }
        }
        for length in 0..<bytes.count {
            let shorter = Array(bytes.prefix(length))
            var short = ByteReader(shorter.rawBytes)
            let refused = TurnBroadcasts(&short)
            #expect(refused == nil)
        }
    }

    @Test(arguments: seeds(60)) func `another node knows where clients stand, by changes as by the whole`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        var book = ResumeRegistry(maximum: 30, loops: 2)
        book.share()
        let secret = ResumeRegistry.Secret(first: 3, second: 4)
        var peer = PeerStandings()
        var here: [ResumeRegistry.Place] = []
        let taker = ResumeRegistry.Taker(address: 1, socket: 1)
        func learn(_ contents: [[UInt8]]) {
            for content in contents {
                let isValid = peer.take(content.rawBytes)
                #expect(isValid)
            }
        }
        for step in 1...80 as ClosedRange<UInt64> {
            let mark = EventLogPosition(epoch: 7, offset: step)
            let key = ResumeKey(high: random.next() % 5, low: 1)
            switch random.next() % 6 {
            case 0, 1:
                if let place = book.arrive(
                    key, of: taker, on: Int(random.next() % 2), lastRef: UInt32(step), at: mark, owesLoss: false, now: 0
                ) {
                    here.append(place)
                }
            case 2: book.set(mark, of: Int(random.next() % 2))
            case 3:
                guard !here.isEmpty else { break }
                book.leave(here.remove(at: Int(random.next() % UInt64(here.count))))
            case 4:
                guard !here.isEmpty else { break }
                let place = here.remove(at: Int(random.next() % UInt64(here.count)))
                book.depart(place, owesLoss: random.next() % 2 == 0, heard: step, until: Int64(step + 20))
            default:
                guard let place = here.randomElement(using: &random) else { break }
                book.stand(
                    place, at: random.next() % 2 == 0 ? mark : nil, lastRef: UInt32(step), heard: step)
            }
            if random.next() % 4 == 0 { book.expire(now: Int64(step)) }
            if random.next() % 3 == 0 { learn(book.takeShared(all: false, secret: secret)) }
        }
        learn(book.takeShared(all: false, secret: secret))
        var whole = PeerStandings()
        for content in book.takeShared(all: true, secret: secret) {
            let isValid = whole.take(content.rawBytes)
            #expect(isValid)
        }
        #expect(peer.count == book.count && whole.count == book.count)
        for number in 0..<5 as Range<UInt64> {
            let key = ResumeKey(high: number, low: 1)
            #expect(peer.candidates(key, firstRef: .max) == whole.candidates(key, firstRef: .max))
        }
        #expect(peer.secret == secret)
    }

    /// Checks that broadcasts which a node said while it could not be heard are reported as lost, however long that was.
    @Test(arguments: [1, 9_000, 90_000] as [UInt64]) func `what a silent node has said is missing`(
        milliseconds: UInt64
    )
        throws
    {
        var nodes = HeardNodes()
        var lost = 0
        func hear(_ kind: PeerLetter.Kind, _ number: UInt64, at now: UInt64) throws {
            let letter = PeerLetter.write(kind, from: 7, number: kind == .pulse ? 0 : number) { writer in
                guard kind == .pulse else { return }
                for count in [number, 0, 0] { writer.append(little: count) }
            }
            let head = try #require(PeerLetter.head(letter))
            _ = nodes.take(head, letter, now, nil, ProjectMetrics()) { if case .broadcastsLost = $0 { lost += 1 } }
        }
        try hear(.broadcasts, 1, at: 1)
        try hear(.pulse, 1, at: 2)
        let later = milliseconds * 1_000_000 + 2
        nodes.forgetSilent(at: later, nil) { _ in }
        #expect(nodes.count == (milliseconds == 1 ? 1 : 0))
        try hear(.pulse, 1, at: later)
        #expect(lost == 0, "it has said nothing")
        nodes.forgetSilent(at: 2 * later + 9_000_000_000, nil) { _ in }
        try hear(.broadcasts, 4, at: 2 * later + 9_000_000_000)
        #expect(lost == 1)
        try hear(.pulse, 4, at: 2 * later + 9_000_000_001)
        #expect(lost == 1, "the loss is reported once")
    }

    // MARK: What nodes tell about themselves

    private func status(_ node: String, sequence: UInt64 = 7, since: Int64? = nil) -> PeerStatus {
        PeerStatus(
            node: node, state: "following", tenure: 3, feedsSince: since, sequence: sequence, lag: 1_500_000_000,
            isFarBehind: true, clients: 12)
    }

    @Test func `a sign of life tells the state of its node`() {
        for status in [status("hub1"), status("hüb \"2\"", sequence: .max, since: 1_800_000_000)] {
            let letter = PeerLetter.write(.pulse, from: 1, number: 0) { writer in
                for number in 1...3 { writer.append(little: UInt64(number)) }
                writer.append(status.encoded)
            }
            #expect(PeerLetter.status(letter) == status)
        }
        // A node of an earlier version tells nothing.
        let short = PeerLetter.write(.pulse, from: 1, number: 0) { writer in
            for number in 1...3 { writer.append(little: UInt64(number)) }
        }
        #expect(PeerLetter.status(short) == nil)
    }

    @Test(arguments: seeds(20)) func `a sign of life survives any bytes`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        for _ in 0..<200 {
            var bytes = status("hub1").encoded
            for _ in 0..<3 {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            if let read = PeerStatus(bytes) { #expect(!read.node.isEmpty && read.clients >= 0) }
        }
    }

    @Test func `the nodes that were heard last are remembered`() {
        var register = PeerRegister(most: 2)
        register.heard(status("a"), at: 1)
        register.heard(status("b"), at: 2)
        register.heard(status("a", sequence: 9), at: 3)
        register.heard(status("c"), at: 4)
        #expect(register.known.keys.sorted() == ["a", "c"])
        #expect(register.known["a"]?.status.sequence == 9 && register.known["a"]?.heardAt == 3)
    }
}
