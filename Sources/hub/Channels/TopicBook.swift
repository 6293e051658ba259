import Bytes

/// Number of a topic on one loop. It is reused after the topic is removed.
public struct TopicID: Sendable, Hashable, BitwiseCopyable {
    @usableFromInline let number: UInt32

    @usableFromInline init(number: UInt32) { self.number = number }
}

/// Names of the topics in use on a loop, each with a number. Topics are found by borrowed bytes, without copying.
@usableFromInline
struct TopicBook: ~Copyable, Sendable {
    private struct Topic {
        /// Name of the topic; nil if the number is free.
        var name: TopicName?
        var hash: UInt64 = 0
        /// Number of the next topic in the same hash bucket; `none` if it is the last one.
        var next: UInt32 = Self.none
        var users: UInt32 = 0

        static let none = UInt32.max
    }

    private let seed: UInt64
    private var topics: [Topic] = []
    private var free: [UInt32] = []
    /// Number of the first topic in each hash bucket. The number of buckets is a power of two.
    private var buckets: [UInt32] = Array(repeating: Topic.none, count: 16)

    /// Creates an empty book. A client that knew the seed could choose topics that are slow to find, so it is kept
    /// secret.
    init(seed: UInt64) { self.seed = seed }

    var count: Int { topics.count - free.count }

    func find(_ subTopic: RawSpan, isPrivate: Bool) -> UInt32? {
        find(subTopic, isPrivate: isPrivate, hash: hash(subTopic, isPrivate: isPrivate))
    }

    func name(of number: UInt32) -> TopicName {
        guard let name = topics[Int(number)].name else { preconditionFailure("a topic that nobody uses") }
        return name
    }

    @usableFromInline func isUsed(_ number: UInt32) -> Bool { topics[Int(number)].users > 0 }

    var numbers: [UInt32] { topics.indices.filter { topics[$0].name != nil }.map { UInt32($0) } }

    /// Adds a user to a topic, creating the topic if there is none (`isNew`). Returns the topic's number.
    mutating func use(_ subTopic: RawSpan, isPrivate: Bool) -> (number: UInt32, isNew: Bool) {
        let hash = hash(subTopic, isPrivate: isPrivate)
        if let number = find(subTopic, isPrivate: isPrivate, hash: hash) {
            topics[Int(number)].users += 1
            return (number, false)
        }
        if count >= buckets.count { grow() }
        let number = free.popLast() ?? appended()
        topics[Int(number)] = Topic(name: TopicName(subTopic, isPrivate: isPrivate), hash: hash, users: 1)
        link(number)
        assert(find(subTopic, isPrivate: isPrivate, hash: hash) == number, "a topic that is not found")
        return (number, true)
    }

    /// Removes a user from a topic. Returns true if it was the last one, so that the topic was removed.
    mutating func release(_ number: UInt32) -> Bool {
        precondition(topics[Int(number)].users > 0, "a topic that nobody uses")
        topics[Int(number)].users -= 1
        guard topics[Int(number)].users == 0 else { return false }
        unlink(number)
        topics[Int(number)] = Topic()
        free.append(number)
        return true
    }

    // MARK: Buckets

    private func hash(_ subTopic: RawSpan, isPrivate: Bool) -> UInt64 {
        var hash = KeyHash(seed: seed)
        hash.combine(isPrivate ? 1 : 0)
        hash.combine(subTopic)
        return hash.value
    }

    private func bucket(_ hash: UInt64) -> Int { Int(truncatingIfNeeded: hash) & (buckets.count - 1) }

    private func find(_ subTopic: RawSpan, isPrivate: Bool, hash: UInt64) -> UInt32? {
        var number = buckets[bucket(hash)]
        while number != Topic.none {
            if topics[Int(number)].hash == hash,
                topics[Int(number)].name?.matches(subTopic, isPrivate: isPrivate) == true
            {
                return number
            }
            number = topics[Int(number)].next
        }
        return nil
    }

    private mutating func appended() -> UInt32 {
        precondition(topics.count < Int(Topic.none), "no more numbers for topics")
        topics.append(Topic())
        return UInt32(topics.count - 1)
    }

    private mutating func link(_ number: UInt32) {
        let bucket = bucket(topics[Int(number)].hash)
        topics[Int(number)].next = buckets[bucket]
        buckets[bucket] = number
    }

    private mutating func unlink(_ number: UInt32) {
        let bucket = bucket(topics[Int(number)].hash)
        let next = topics[Int(number)].next
        guard buckets[bucket] != number else { return buckets[bucket] = next }
        var before = buckets[bucket]
        while topics[Int(before)].next != number {
            before = topics[Int(before)].next
            precondition(before != Topic.none, "a topic that stands in another bucket")
        }
        topics[Int(before)].next = next
    }

    private mutating func grow() {
        buckets = Array(repeating: Topic.none, count: buckets.count * 2)
        for number in topics.indices where topics[number].name != nil { link(UInt32(number)) }
    }
}
