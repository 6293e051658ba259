import Bytes
import Channels
import Diagnostics

/// Presences of one other node, as they follow from its letters.
///
/// The node numbers its letters. If one is missing, the book asks for all presences of the node, and until they arrive
/// it keeps what it knows. It has no clock and no connection.
struct PeerPresence: Sendable {
    /// Virtual loop number of the node's first loop, by which trackers of different nodes differ.
    let base: UInt16
    private(set) var present: [PresenceTracker: PresenceChange] = [:]
    /// Number of the last letter that was applied; nil before the first answer with all presences.
    private(set) var number: UInt64?
    /// Parts of an answer with all presences that has begun to arrive.
    private var parts: (number: UInt64, wanted: Int, changes: [PresenceChange])?

    init(base: UInt16) { self.base = base }

    /// True if the node must be asked for all its presences: letters are missing.
    func isMissing(upTo last: UInt64) -> Bool { number.map { $0 < last } ?? true }

    /// Applies a letter of changes. Returns the changes for this node's loops; nil if an earlier letter is missing.
    mutating func apply(_ changes: [PresenceChange], number next: UInt64) -> [PresenceChange]? {
        guard let number, next <= number + 1 else { return nil }
        guard next == number + 1 else { return [] }
        self.number = next
        return changes.map { note($0.moved(by: base)) }
    }

    /// Applies a part of an answer with all presences. Returns the changes for this node's loops when the last part has
    /// arrived; until then none.
    mutating func replace(
        _ changes: [PresenceChange], part: Int, of count: Int, number: UInt64
    ) -> [PresenceChange] {
        if part == 0 { parts = (number, 0, []) }
        guard var known = parts, known.number == number, known.wanted == part else {
            parts = nil
            return []
        }
        known.wanted += 1
        known.changes += changes.map { $0.moved(by: base) }
        parts = known
        guard known.wanted == count else { return [] }
        parts = nil
        return settle(known.changes, number)
    }

    private mutating func settle(_ all: [PresenceChange], _ number: UInt64) -> [PresenceChange] {
        // An answer that was made before later letters arrived is of no use.
        if let known = self.number, number < known { return [] }
        self.number = number
        let trackers = Set(all.map(\.tracker))
        let left = present.values.filter { !trackers.contains($0.tracker) }.map(\.leaving)
        let joined = all.filter { present[$0.tracker]?.joined?.ref != $0.joined?.ref }
        return (left + joined).map { note($0) }
    }

    /// Returns the changes by which all members of the node leave.
    mutating func leave() -> [PresenceChange] { present.values.map(\.leaving).map { note($0) } }

    private mutating func note(_ change: PresenceChange) -> PresenceChange {
        present[change.tracker] = change.joined == nil ? nil : change
        return change
    }
}

extension PresenceChange {
    /// Returns the change with its loop's number as this node numbers the loops of another one.
    fileprivate func moved(by base: UInt16) -> PresenceChange {
        PresenceChange(
            tracker: PresenceTracker(loop: tracker.loop &+ base, channel: tracker.channel), topic: topic, key: key,
            joined: joined, left: left)
    }

    /// Returns the change that ends the presence which this one began.
    fileprivate var leaving: PresenceChange {
        PresenceChange(tracker: tracker, topic: topic, key: key, joined: nil, left: joined)
    }
}
