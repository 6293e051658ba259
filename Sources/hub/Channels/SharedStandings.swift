import Bytes
import EventLog

/// Entry of a registry as other nodes of a cluster know it.
struct SharedStanding: Sendable, Equatable {
    var place: UInt32
    /// False if the entry is free now.
    var isInUse: Bool
    /// True if the entry's client has disconnected.
    var isGone: Bool
    var owesLoss: Bool
    var loop: UInt16
    var lastRef: UInt32
    var key: ResumeKey
    /// Acknowledged position; nil if that of the loop applies.
    var mark: EventLogPosition?

    static let byteCount = 44

    func append(to writer: inout ByteWriter) {
        writer.append(little: place)
        writer.append(
            UInt8(isInUse ? 1 : 0) | UInt8(isGone ? 2 : 0) | UInt8(owesLoss ? 4 : 0) | UInt8(mark == nil ? 0 : 8))
        writer.append(UInt8(0))
        writer.append(little: loop)
        writer.append(little: lastRef)
        writer.append(little: key.high)
        writer.append(little: key.low)
        writer.append(little: mark?.epoch ?? 0)
        writer.append(little: mark?.offset ?? 0)
    }

    init(_ reader: inout ByteReader) throws(ByteError) {
        place = try reader.littleUInt32()
        let flags = try reader.uint8()
        try reader.skip(1)
        (isInUse, isGone, owesLoss) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0)
        loop = try reader.littleUInt16()
        lastRef = try reader.littleUInt32()
        key = ResumeKey(high: try reader.littleUInt64(), low: try reader.littleUInt64())
        let position = EventLogPosition(epoch: try reader.littleUInt64(), offset: try reader.littleUInt64())
        mark = flags & 8 != 0 ? position : nil
    }

    init(_ entry: ResumeRegistry.Entry, at place: UInt32) {
        self.place = place
        // Another client was taken for this one: it says so itself if that was wrong.
        isInUse = entry.standing != .free && entry.succeeded == 0
        isGone = entry.standing == .gone
        owesLoss = entry.owesLoss
        loop = entry.loop
        lastRef = entry.lastRef
        key = entry.key
        mark = entry.hasOwnMark ? entry.mark : nil
    }
}

// MARK: What this node tells

/// Stored form: flags u8 (bit 0: the receiver forgets what it knew) · secret 2 × u64 · number of loops u16 · for each
/// a flag u8 and a position 2 × u64 · number of entries u32 · entries.
extension ResumeRegistry {
    /// Maximum number of entries in one content.
    private static let portion = 8_000

    /// Begins to remember which entries other nodes do not know yet.
    public mutating func share() { unshared = [] }

    /// Returns the changes since the last call as contents of letters, or all entries.
    public mutating func takeShared(all: Bool, secret: Secret) -> [[UInt8]] {
        guard let changed = unshared, all || !changed.isEmpty || sharedMarks != loopMarks else { return [] }
        sharedMarks = loopMarks
        let places = all ? (0..<UInt32(entries.count)).filter { entries[Int($0)].standing != .free } : changed.sorted()
        unshared = []
        var contents: [[UInt8]] = []
        var start = 0
        repeat {
            let end = min(start + Self.portion, places.count)
            var writer = ByteWriter(capacity: 64 + (end - start) * SharedStanding.byteCount)
            writer.append(UInt8(all && start == 0 ? 1 : 0))
            writer.append(little: secret.first)
            writer.append(little: secret.second)
            writer.append(little: UInt16(loopMarks.count))
            for mark in loopMarks {
                writer.append(UInt8(mark == nil ? 0 : 1))
                writer.append(little: mark?.epoch ?? 0)
                writer.append(little: mark?.offset ?? 0)
            }
            writer.append(little: UInt32(end - start))
            for place in places[start..<end] {
                SharedStanding(entries[Int(place)], at: place).append(to: &writer)
            }
            contents.append(writer.copied())
            start = end
        } while start < places.count
        return contents
    }

    /// Records that another node serves the client of an entry now.
    public mutating func claimedElsewhere(_ claim: ClaimedEntry, now: UInt64) {
        let place = Int(claim.place)
        guard place < entries.count, entries[place].key == claim.key, entries[place].lastRef < claim.firstRef else {
            return
        }
        switch entries[place].standing {
        case .free: break
        case .gone: release(claim.place)
        // The client may still be here: another one of the same login was taken for it. It says so by its next message.
        case .here: succeed(claim.place, now)
        }
    }
}

/// Entry of a node's registry whose client another node serves now.
///
/// A claim can be heard late, because it is sent again to a node that starts. The client may have come back to the entry
/// since: the entry then has a later message of the client than the claim.
public struct ClaimedEntry: Sendable, Equatable {
    public var place: UInt32
    public var key: ResumeKey
    /// Number of the client's first message to the node that serves it.
    public var firstRef: UInt32

    public init(place: UInt32, key: ResumeKey, firstRef: UInt32) {
        self.place = place
        self.key = key
        self.firstRef = firstRef
    }

    public init(_ reader: inout ByteReader) throws(ByteError) {
        place = try reader.littleUInt32()
        key = ResumeKey(high: try reader.littleUInt64(), low: try reader.littleUInt64())
        firstRef = try reader.littleUInt32()
    }

    public func append(to writer: inout ByteWriter) {
        writer.append(little: place)
        writer.append(little: key.high)
        writer.append(little: key.low)
        writer.append(little: firstRef)
    }
}

// MARK: What other nodes have told

/// Positions of another node's clients, as it has told them.
public struct PeerStandings: Sendable {
    /// Position of a client of another node that may be the one who joins.
    public struct Candidate: Sendable, Equatable {
        public var place: UInt32
        public var mark: EventLogPosition
        public var owesLoss: Bool
        public var isGone: Bool
    }

    /// Secret with which the node hashes keys; nil before its first letter.
    public private(set) var secret: ResumeRegistry.Secret?
    private var marks: [EventLogPosition?] = []
    private var entries: [UInt32: SharedStanding] = [:]
    private var places: [ResumeKey: Set<UInt32>] = [:]

    public init() {}

    public var count: Int { entries.count }

    /// Takes the content of a letter. Returns false if it is invalid.
    public mutating func take(_ content: RawSpan) -> Bool {
        do throws(ByteError) {
            var reader = ByteReader(content)
            if try reader.uint8() & 1 != 0 { self = PeerStandings() }
            secret = ResumeRegistry.Secret(first: try reader.littleUInt64(), second: try reader.littleUInt64())
            var marks: [EventLogPosition?] = []
            for _ in 0..<(try reader.littleUInt16()) {
                let isKnown = try reader.uint8() == 1
                let mark = EventLogPosition(epoch: try reader.littleUInt64(), offset: try reader.littleUInt64())
                marks.append(isKnown ? mark : nil)
            }
            self.marks = marks
            for _ in 0..<(try reader.littleUInt32()) { put(try SharedStanding(&reader)) }
            return true
        } catch {
            return false
        }
    }

    private mutating func put(_ standing: SharedStanding) {
        remove(standing.place)
        guard standing.isInUse else { return }
        entries[standing.place] = standing
        places[standing.key, default: []].insert(standing.place)
    }

    /// Returns the entries that may belong to a client whose first message has this number.
    public func candidates(_ key: ResumeKey, firstRef: UInt32) -> [Candidate] {
        (places[key] ?? []).sorted().compactMap { place in
            guard let entry = entries[place], entry.lastRef < firstRef else { return nil }
            let ofLoop = Int(entry.loop) < marks.count ? marks[Int(entry.loop)] : nil
            guard let mark = entry.mark ?? ofLoop else { return nil }
            return Candidate(place: place, mark: mark, owesLoss: entry.owesLoss, isGone: entry.isGone)
        }
    }

    /// Removes an entry whose client another node serves now.
    public mutating func remove(_ claim: ClaimedEntry) {
        guard let known = entries[claim.place], known.key == claim.key, known.lastRef < claim.firstRef else { return }
        remove(claim.place)
    }

    /// Removes the entries that newer standings of the same node have, too.
    public mutating func remove(knownBy newer: PeerStandings) {
        let known = entries.filter { newer.entries[$0.key]?.key == $0.value.key }
        for place in known.keys { remove(place) }
    }

    private mutating func remove(_ place: UInt32) {
        guard let known = entries.removeValue(forKey: place) else { return }
        places[known.key]?.remove(place)
        if places[known.key]?.isEmpty == true { places[known.key] = nil }
    }
}
