import Bytes

/// The place of a member, which it keeps until it is removed.
public struct TopicPlace: Sendable, Hashable, BitwiseCopyable {
    @usableFromInline let number: UInt32

    @usableFromInline init(number: UInt32) { self.number = number }
}

/// One member of a topic, among the others.
public struct TopicMember<Member: BitwiseCopyable>: BitwiseCopyable {
    public internal(set) var member: Member
    @usableFromInline var place: UInt32

    @usableFromInline init(member: Member, place: UInt32) {
        self.member = member
        self.place = place
    }
}

extension TopicMember: Sendable where Member: Sendable {}

/// The topics of one loop and who is to hear what is said there. In: sub-topics as bytes, members as numbers of the caller's.
/// Out: the members of a topic side by side, for one pass over them.
///
/// Whoever joins uses its topic, and is a member from when it may hear until it may not: a topic is gone with its last user.
/// A place is what remains the same while members around it come and go. Beside its member it takes 16 bytes.
public struct TopicTable<Member: BitwiseCopyable>: ~Copyable {
    @usableFromInline struct Place: Sendable, BitwiseCopyable {
        /// `UInt32.max` while the place is free.
        @usableFromInline var topic: UInt32
        @usableFromInline var index: UInt32

        @usableFromInline init(topic: UInt32, index: UInt32) {
            self.topic = topic
            self.index = index
        }
    }

    @usableFromInline var book: TopicBook
    /// The members of each topic, by its number.
    @usableFromInline var rosters: [[TopicMember<Member>]] = []
    @usableFromInline var places: [Place] = []
    @usableFromInline var freePlaces: [UInt32] = []

    /// The seed keeps clients from choosing topics that are slow to find.
    public init(seed: UInt64 = .random(in: .min ... .max)) { book = TopicBook(seed: seed) }

    public var topicCount: Int { book.count }
    @inlinable public var memberCount: Int { places.count - freePlaces.count }

    /// All of them, for what is told to everybody.
    public var topics: [TopicID] { book.numbers.map { TopicID(number: $0) } }

    // MARK: Topics

    /// Uses a topic, which is made if nobody did yet. Each use is given back with `leave`.
    public mutating func join(_ subTopic: RawSpan, isPrivate: Bool) -> TopicID {
        let (number, isNew) = book.use(subTopic, isPrivate: isPrivate)
        if isNew, Int(number) == rosters.count { rosters.append([]) }
        precondition(!isNew || rosters[Int(number)].isEmpty, "members of the topic that had this number")
        return TopicID(number: number)
    }

    /// Its user's member must have been removed before.
    public mutating func leave(_ topic: TopicID) {
        guard book.release(topic.number) else { return }
        precondition(rosters[Int(topic.number)].isEmpty, "a member of a topic that nobody uses")
        rosters[Int(topic.number)] = []
    }

    public func find(_ subTopic: RawSpan, isPrivate: Bool) -> TopicID? {
        book.find(subTopic, isPrivate: isPrivate).map { TopicID(number: $0) }
    }

    public func find(_ name: TopicName) -> TopicID? { find(name.subTopic, isPrivate: name.isPrivate) }

    public func name(of topic: TopicID) -> TopicName { book.name(of: topic.number) }

    // MARK: Members

    @inlinable
    public mutating func add(_ member: Member, to topic: TopicID) -> TopicPlace {
        // Its number is given to another topic, whose messages the member would hear.
        precondition(book.isUsed(topic.number), "a member of a topic that nobody uses")
        let index = rosters[Int(topic.number)].count
        precondition(index < Int(UInt32.max), "no more room in a topic")
        let number = freePlaces.popLast() ?? UInt32(places.count)
        let place = Place(topic: topic.number, index: UInt32(index))
        if Int(number) == places.count { places.append(place) } else { places[Int(number)] = place }
        rosters[Int(topic.number)].append(TopicMember(member: member, place: number))
        return TopicPlace(number: number)
    }

    @inlinable
    public subscript(place: TopicPlace) -> Member {
        get {
            let at = checked(place)
            return rosters[Int(at.topic)][Int(at.index)].member
        }
        set {
            let at = checked(place)
            rosters[Int(at.topic)][Int(at.index)] = TopicMember(member: newValue, place: place.number)
        }
    }

    @inlinable
    public func topic(at place: TopicPlace) -> TopicID { TopicID(number: checked(place).topic) }

    /// The last member moves to where this one was; everybody keeps its place.
    @inlinable
    public mutating func remove(_ place: TopicPlace) {
        let at = checked(place)
        assert(rosters[Int(at.topic)][Int(at.index)].place == place.number, "another member stands there")
        let last = rosters[Int(at.topic)].removeLast()
        if last.place != place.number {
            rosters[Int(at.topic)][Int(at.index)] = last
            places[Int(last.place)].index = at.index
        }
        places[Int(place.number)] = Place(topic: .max, index: 0)
        freePlaces.append(place.number)
        shrink(Int(at.topic))
    }

    /// A topic that was crowded once gives the memory back.
    @usableFromInline
    mutating func shrink(_ topic: Int) {
        guard rosters[topic].capacity > 64, rosters[topic].count < rosters[topic].capacity / 4 else { return }
        var smaller: [TopicMember<Member>] = []
        smaller.reserveCapacity(rosters[topic].count * 2)
        smaller += rosters[topic]
        rosters[topic] = smaller
    }

    /// As they are now: a pass over them is not disturbed by members that come and go meanwhile.
    @inlinable
    public func members(of topic: TopicID) -> [TopicMember<Member>] { rosters[Int(topic.number)] }

    @inlinable
    func checked(_ place: TopicPlace) -> Place {
        let at = places[Int(place.number)]
        precondition(at.topic != .max, "a place that was given back")
        return at
    }
}

extension TopicTable: Sendable where Member: Sendable {}
