import Bytes
import TestSupport
import Testing

@testable import Channels

/// Topic table, with its expected contents.
final class TopicStage {
    var table = TopicTable<UInt64>(seed: 7)

    func join(_ topic: String, isPrivate: Bool = false) -> TopicID {
        table.join(Array(topic.utf8).span.bytes, isPrivate: isPrivate)
    }

    func find(_ topic: String, isPrivate: Bool = false) -> TopicID? {
        table.find(Array(topic.utf8).span.bytes, isPrivate: isPrivate)
    }

    var topicCount: Int { table.topicCount }

    func members(of topic: TopicID) -> [UInt64] {
        table.members(of: topic).map(\.member)
    }
}

@Suite(.within(minutes: 5)) struct TopicTests {
    @Test func `a topic is there from its first user to its last`() {
        let stage = TopicStage()
        let first = stage.join("room:1")
        let second = stage.join("room:1")
        #expect(first == second && stage.find("room:1") == first)
        stage.table.leave(first)
        #expect(stage.find("room:1") == first)
        stage.table.leave(second)
        #expect(stage.find("room:1") == nil && stage.topicCount == 0)
    }

    @Test func `trap 16: public and private topics of one name are two`() {
        let stage = TopicStage()
        let open = stage.join("room")
        let closed = stage.join("room", isPrivate: true)
        _ = stage.table.add(1, to: open)
        _ = stage.table.add(2, to: closed)
        #expect(open != closed && stage.members(of: open) == [1] && stage.members(of: closed) == [2])
        let name = stage.table.name(of: closed)
        let found = stage.table.find(name)
        #expect(name == TopicName("room", isPrivate: true) && found == closed)
    }

    @Test func `trap 17: a topic's name has the prefix, and its sub-topic has not`() {
        let name = TopicName("room:1", isPrivate: false)
        let subTopic = name.subTopic.text
        let none = TopicName("", isPrivate: false).subTopic.text
        #expect(name.full == Array("realtime:room:1".utf8) && subTopic == "room:1" && none.isEmpty)
        #expect(TopicName(Array("a".utf8).span.bytes, isPrivate: true) == TopicName("a", isPrivate: true))
    }

    @Test func `members keep their places when others go`() {
        let stage = TopicStage()
        let topic = stage.join("a")
        let places = (0..<5).map { stage.table.add(UInt64($0), to: topic) }
        stage.table.remove(places[1])
        stage.table.remove(places[4])
        #expect(stage.members(of: topic).sorted() == [0, 2, 3])
        stage.table[places[3]] = 33
        let three = stage.table[places[3]]
        let zero = stage.table[places[0]]
        #expect(three == 33 && zero == 0 && stage.members(of: topic).sorted() == [0, 2, 33])
    }

    @Test func `a pass over members is not disturbed by who leaves during it`() {
        let stage = TopicStage()
        let topic = stage.join("a")
        let places = (0..<100).map { stage.table.add(UInt64($0), to: topic) }
        var heard: [UInt64] = []
        for one in stage.table.members(of: topic) {
            if one.member % 3 == 0 { stage.table.remove(places[Int(one.member)]) }
            heard.append(one.member)
        }
        #expect(heard == Array(0..<100) && stage.members(of: topic).sorted() == (0..<100).filter { $0 % 3 != 0 })
    }

    @Test func `a member takes two words beside what the caller keeps`() {
        #expect(MemoryLayout<TopicMember<UInt32>>.stride == 8 && MemoryLayout<TopicMember<UInt64>>.stride == 16)
        #expect(MemoryLayout<TopicPlace>.size == 4)
    }

    @Test(arguments: seeds(20))
    func `after any comings and goings, topics have the members they should`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        let stage = TopicStage()
        var model: [(name: String, isPrivate: Bool, topic: TopicID, place: TopicPlace?, member: UInt64)] = []
        for step in 0..<2000 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<5:
                let name = "room:\(Int.random(in: 0..<60, using: &random))"
                let isPrivate = Bool.random(using: &random)
                let topic = stage.join(name, isPrivate: isPrivate)
                let place = random.next() % 4 == 0 ? nil : stage.table.add(UInt64(step), to: topic)
                model.append((name, isPrivate, topic, place, UInt64(step)))
            case 5..<9 where !model.isEmpty:
                let gone = model.remove(at: Int.random(in: 0..<model.count, using: &random))
                if let place = gone.place { stage.table.remove(place) }
                stage.table.leave(gone.topic)
            default:
                guard let index = model.indices.randomElement(using: &random), let place = model[index].place
                else { continue }
                model[index].member += 1_000_000
                stage.table[place] = model[index].member
            }
        }
        for user in model {
            let sharing = model.filter { $0.name == user.name && $0.isPrivate == user.isPrivate }
            #expect(stage.find(user.name, isPrivate: user.isPrivate) == user.topic)
            #expect(stage.members(of: user.topic).sorted() == sharing.filter { $0.place != nil }.map(\.member).sorted())
        }
        let topics = Set(model.map(\.topic))
        #expect(Set(stage.table.topics) == topics)
        let counts = (stage.table.topicCount, stage.table.memberCount)
        #expect(counts == (topics.count, model.count { $0.place != nil }))
    }
}
