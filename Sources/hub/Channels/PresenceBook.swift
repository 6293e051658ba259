import Bytes

/// Presence in a project's topics, as one loop knows it. Its input is the presences that this loop's channels track,
/// and changes from other loops. Its output is the changes for the other loops, and messages for the members of a
/// topic: first a state, then at most one difference in each turn.
///
/// Only the loop that owns a channel reports its presence, and its reports arrive in order. So all loops have the same
/// presences in the same order, byte for byte, once all reports have arrived.
public struct PresenceBook: ~Copyable, Sendable {
    private struct Tracked {
        let topic: Int
        let key: [UInt8]
        let ref: PresenceRef
    }

    private let limits: PresenceLimits
    private var topics: [PresenceTopic] = []
    private var free: [Int] = []
    private var numbers: [TopicName: Int] = [:]
    private var trackers: [PresenceTracker: Tracked] = [:]
    /// Numbers of the topics with changes that their members have not been sent.
    private var changed: [Int] = []

    public init(_ limits: PresenceLimits) { self.limits = limits }

    public var trackerCount: Int { trackers.count }
    public var topicCount: Int { numbers.count }

    public func isTracking(_ tracker: PresenceTracker) -> Bool { trackers[tracker] != nil }

    /// Returns the number of presences in a topic now.
    public func count(in topic: TopicName) -> Int { numbers[topic].map { topics[$0].presentCount } ?? 0 }

    // MARK: This loop's channels

    /// Tracks a presence of a channel. Returns the change for the other loops; nil if the channel already tracks the
    /// same presence.
    ///
    /// - Parameters:
    ///   - key: UTF-8 text.
    ///   - payload: JSON object, or empty for an object without members.
    public mutating func track(
        _ tracker: PresenceTracker, in topic: TopicName, key: RawSpan, payload: RawSpan, ref: PresenceRef
    ) throws(PresenceRefusal) -> PresenceChange? {
        var members = ByteWriter(capacity: payload.byteCount + 1)
        try PresenceMeta.appendMembers(of: payload, to: &members)
        guard members.count < limits.maximumMetaBytes else { throw .tooLarge }
        let current = meta(of: tracker)
        assert((current != nil) == isTracking(tracker), "a presence that nobody tracks")
        if let current, current.hasMembers(members.bytes) { return nil }
        if current == nil { try checkRoom(in: topic) }
        let change = PresenceChange(
            tracker: tracker, topic: topic, key: Self.quoted(key),
            joined: PresenceMeta(ref, previous: current?.ref, members: members.bytes), left: current)
        apply(change)
        return change
    }

    /// Ends the presence that a channel tracks. Returns the change for the other loops; nil if there was no presence.
    public mutating func untrack(_ tracker: PresenceTracker) -> PresenceChange? {
        guard let tracked = trackers[tracker] else { return nil }
        let change = PresenceChange(
            tracker: tracker, topic: topics[tracked.topic].name, key: tracked.key, joined: nil,
            left: meta(of: tracker))
        apply(change)
        return change
    }

    private func checkRoom(in topic: TopicName) throws(PresenceRefusal) {
        if let number = numbers[topic] {
            guard topics[number].presentCount < limits.maximumMetasPerTopic else { throw .topicFull }
        } else if numbers.count >= limits.maximumTopics {
            throw .tooManyTopics
        }
    }

    private static func quoted(_ key: RawSpan) -> [UInt8] {
        var writer = ByteWriter(capacity: key.byteCount + 2)
        JSONText.appendString(key, to: &writer)
        return writer.copied()
    }

    // MARK: Other loops' channels

    /// Applies a change from another loop. Changes of one loop must arrive in the order in which it made them. Adding a
    /// presence that is already known, or ending an unknown one, has no effect.
    public mutating func apply(_ change: PresenceChange) {
        if let known = trackers[change.tracker] {
            if known.ref == change.joined?.ref { return }
            note(known.topic)
            topics[known.topic].remove(key: known.key, known.ref)
            trackers[change.tracker] = nil
        }
        guard let joined = change.joined else { return }
        let number = number(of: change.topic)
        note(number)
        topics[number].insert(key: change.key, joined)
        trackers[change.tracker] = Tracked(topic: number, key: change.key, ref: joined.ref)
    }

    /// Returns the presences of one loop's channels as changes, in the order in which they were tracked. They bring a
    /// loop up to date that starts later than the others.
    public func changes(of loop: UInt16) -> [PresenceChange] {
        let tracked = trackers.filter { $0.key.loop == loop }.sorted { $0.value.ref < $1.value.ref }
        return tracked.map { tracker, tracked in
            PresenceChange(
                tracker: tracker, topic: topics[tracked.topic].name, key: tracked.key, joined: meta(of: tracker),
                left: nil)
        }
    }

    private func meta(of tracker: PresenceTracker) -> PresenceMeta? {
        guard let tracked = trackers[tracker] else { return nil }
        return topics[tracked.topic].meta(key: tracked.key, tracked.ref)
    }

    private mutating func number(of topic: TopicName) -> Int {
        if let number = numbers[topic] { return number }
        let number = free.popLast() ?? topics.count
        if number == topics.count { topics.append(PresenceTopic(topic)) } else { topics[number] = PresenceTopic(topic) }
        numbers[topic] = number
        return number
    }

    /// Records that a topic's members must be sent a difference; called before a presence is added or removed.
    private mutating func note(_ topic: Int) {
        if !topics[topic].isChanged { changed.append(topic) }
    }

    // MARK: Messages to members

    /// Appends the object of a `presence_state`: the presences that the topic's members have been sent. A member that
    /// gets the state must also get the topic's next difference.
    public func appendState(of topic: TopicName, to writer: inout ByteWriter) {
        guard let number = numbers[topic] else { return writer.append("{}") }
        topics[number].appendTold(to: &writer)
    }

    /// True if some topic has changes that its members have not been sent.
    public var hasDiffs: Bool { !changed.isEmpty }

    /// Writes the `presence_diff` object of the next changed topic, with all presences added and removed since its
    /// members were last sent a difference. Returns the topic; nil if there is no more.
    ///
    /// - Parameter isWanted: false for a topic without listeners on this loop, which is skipped.
    public mutating func takeDiff(
        into writer: inout ByteWriter, isWanted: (TopicName) -> Bool = { _ in true }
    ) -> TopicName? {
        while let number = changed.popLast() {
            let name = topics[number].name
            let isWanted = isWanted(name)
            if isWanted { topics[number].appendDiff(to: &writer) }
            topics[number].settle()
            assert(topics[number].entries.count == topics[number].presentCount, "somebody who is there and is not")
            if topics[number].entries.isEmpty { forget(number) }
            if isWanted { return name }
        }
        return nil
    }

    private mutating func forget(_ number: Int) {
        precondition(topics[number].presentCount == 0, "a topic that somebody is in")
        numbers[topics[number].name] = nil
        topics[number] = PresenceTopic(TopicName(RawSpan(), isPrivate: false))
        free.append(number)
    }
}
