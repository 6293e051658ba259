import Bytes

/// Index of a member in the table, which stays the same until the member is removed.
public struct TopicPlace: Sendable, Hashable, BitwiseCopyable {
    @usableFromInline let number: UInt32

    @usableFromInline init(number: UInt32) { self.number = number }
}

/// Member of a topic, with its index in the `TopicTable`.
public struct TopicMember<Member: BitwiseCopyable>: BitwiseCopyable {
    public internal(set) var member: Member
    @usableFromInline var place: UInt32

    @usableFromInline init(member: Member, place: UInt32) {
        self.member = member
        self.place = place
    }
}

extension TopicMember: Sendable where Member: Sendable {}

/// Topics of one loop, and the members that receive their messages. Topics are found by the bytes of the sub-topic.
/// Members are values of the caller's type. The members of a topic are stored together, so that one pass reaches them
/// all.
///
/// A joining channel uses its topic, and is a member while it may receive. A topic is removed with its last user. A
/// member's index stays the same while others are added and removed. A member costs 16 bytes besides its value.
public struct TopicTable<Member: BitwiseCopyable>: ~Copyable {
    @usableFromInline struct Place: Sendable, BitwiseCopyable {
        /// Number of the topic; `UInt32.max` if the place is free.
        @usableFromInline var topic: UInt32
        /// Index of the member in the topic's list of members (`rosters`).
        @usableFromInline var index: UInt32

        @usableFromInline init(topic: UInt32, index: UInt32) {
            self.topic = topic
            self.index = index
        }
    }

    @usableFromInline var book: TopicBook
    /// Lists of the members of each topic, by the topic's number.
    @usableFromInline var rosters: [[TopicMember<Member>]] = []
    @usableFromInline var places: [Place] = []
    @usableFromInline var freePlaces: [UInt32] = []

    /// Creates an empty table. A random seed prevents clients from choosing topics that are slow to find.
    public init(seed: UInt64 = .random(in: .min ... .max)) { book = TopicBook(seed: seed) }

    public var topicCount: Int { book.count }
    @inlinable public var memberCount: Int { places.count - freePlaces.count }

    /// All topics in use.
    public var topics: [TopicID] { book.numbers.map { TopicID(number: $0) } }

    // MARK: Topics

    /// Adds a user to a topic, and creates the topic if there is none. The caller calls `leave` once for each call.
    public mutating func join(_ subTopic: RawSpan, isPrivate: Bool) -> TopicID {
        let (number, isNew) = book.use(subTopic, isPrivate: isPrivate)
        if isNew, Int(number) == rosters.count { rosters.append([]) }
        precondition(!isNew || rosters[Int(number)].isEmpty, "members of the topic that had this number")
        return TopicID(number: number)
    }

    /// Removes a user from a topic. The user's member must have been removed before.
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
        // The number of an unused topic is given to another one, whose messages the member would receive.
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

    /// Removes a member. The last member of the topic's list moves to its position; the table's indices of all other
    /// members stay the same.
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

    /// Frees memory of a topic that had many more members before.
    @usableFromInline
    mutating func shrink(_ topic: Int) {
        guard rosters[topic].capacity > 64, rosters[topic].count < rosters[topic].capacity / 4 else { return }
        var smaller: [TopicMember<Member>] = []
        smaller.reserveCapacity(rosters[topic].count * 2)
        smaller += rosters[topic]
        rosters[topic] = smaller
    }

    /// Returns the current members of a topic. Later additions and removals do not affect the returned array.
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
