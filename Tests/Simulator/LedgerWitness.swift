import Change
import History
import TestSupport

/// Check of the hub's ledger against the events that channels receive. A channel that received a change must be joined
/// in the ledger, and if deliveries are recorded, the delivery must be, too. If the log sometimes has no room for
/// notes, the ledger must not show a channel that left as joined, nor call an incomplete list complete.
final class LedgerWitness {
    private struct Seat: Hashable {
        let session: UInt64
        let channel: UInt32
    }

    private struct Stay {
        let session: UInt64
        let channel: UInt32
        let since: UInt64
        var end: UInt64?
    }

    /// Recorded periods of channels from join to end, by topic, the newest last.
    private var stays: [[UInt8]: [Stay]] = [:]
    private static let kept = 256
    private var topics: [Seat: [UInt8]] = [:]
    /// Offsets that are recorded as sent, by channel.
    private var sent: [Seat: Set<UInt64>] = [:]
    /// Received changes that the check must still find in the ledger.
    private var heard: [(topic: [UInt8], offset: UInt64)] = []
    /// Hashes of all changes that clients have read, by topic.
    private var read: [[UInt8]: Set<UInt64>] = [:]
    /// Hashes of the changes with which some client received an offset, by offset.
    private var hashes: [UInt64: UInt64] = [:]
    /// Ended channels, each with the offset before which the hub counted everything as received.
    private var acknowledged: [(seat: Seat, topic: [UInt8], offset: UInt64)] = []
    /// Ended channels of which the hub counted more as received than it had sent.
    private var beyond: [(topic: [UInt8], sent: UInt64, received: UInt64)] = []
    let recordsEach: Bool
    private(set) var found = 0

    /// Attendance according to the notes so far.
    private var book = AttendanceBook()
    /// Random source that decides when the log has no room; nil if it always has room.
    private var scarcity: SeededRandom?
    private var refusals = 0
    /// True while the log has room for every note.
    var isCalm = false

    init(recordsEach: Bool, scarcity: SeededRandom?) {
        self.recordsEach = recordsEach
        self.scarcity = scarcity
    }

    var isScarce: Bool { scarcity != nil }

    /// Accepts a note. Returns false if the log has no room for it.
    func take(_ note: LedgerNote, at place: UInt64) -> Bool {
        guard hasRoom() else { return false }
        var known = stays[note.topic] ?? []
        defer { stays[note.topic] = known.suffix(Self.kept) }
        switch note.event {
        case .joined:
            known.append(Stay(session: note.session, channel: note.channel, since: note.offset, end: nil))
            name(note)
        case .stands: name(note)
        case .left:
            let place = known.lastIndex { $0.session == note.session && $0.channel == note.channel }
            if let place { known[place].end = note.offset }
            let seat = Seat(session: note.session, channel: note.channel)
            if note.received > note.offset { beyond.append((note.topic, note.offset, note.received)) }
            if recordsEach { acknowledged.append((seat, note.topic, note.received)) }
        case .refused, .renewed, .told, .began, .reached, .unrecorded, .answered, .missed: break
        case .delivered: takeDeliveries(note)
        }
        book.add(note, at: place)
        return true
    }

    private func hasRoom() -> Bool {
        guard isScarce, !isCalm else { return true }
        if refusals == 0, chance(30) == 0 { refusals = chance(40) }
        guard refusals > 0 else { return true }
        refusals -= 1
        return false
    }

    private func chance(_ count: UInt64) -> Int { Int((scarcity?.next() ?? 1) % count) }

    private func name(_ note: LedgerNote) {
        if recordsEach { topics[Seat(session: note.session, channel: note.channel)] = note.topic }
    }

    private func takeDeliveries(_ note: LedgerNote) {
        do {
            try DeliveryBlock.read(note.deliveries.span.bytes, from: note.time) { delivery in
                let seat = Seat(session: delivery.session, channel: delivery.channel)
                precondition(isScarce || topics[seat] != nil, "nobody is sent a change who has not joined")
                sent[seat, default: []].insert(delivery.offset)
            }
        } catch {
            preconditionFailure("deliveries that were recorded do not read back: \(error)")
        }
    }

    /// Records that a channel of the topic received a change.
    func hears(_ topic: String, _ offset: UInt64) {
        if recordsEach || isScarce { heard.append((Array(topic.utf8), offset)) }
    }

    /// Records the hash of a change that a client read, with the change's offset if the message contained it.
    func reads(_ topic: String, _ hash: UInt64, at offset: UInt64?) {
        guard recordsEach else { return }
        read[Array(topic.utf8), default: []].insert(hash)
        if let offset { hashes[offset] = hash }
    }

    /// Discards the records that the hub had not written when its process ended. The next hub writes a note that it
    /// began.
    func hubDied(at time: Int64, place: UInt64) {
        heard = []
        // After a power failure, other changes may get the same offsets.
        hashes = [:]
        acknowledged = []
        book.add(LedgerNote(.began, time: time, session: 0, channel: 0), at: place)
    }

    /// Returns the ledger's faults. Must be called after all events have arrived.
    ///
    /// - Parameter joined: number of joined channels by topic.
    func complaints(_ joined: [String: Int]) -> [String] {
        defer { heard = [] }
        found += heard.count
        var stays: [[UInt8]: [Attendance]] = [:]
        for stay in book.all { stays[stay.joined.note.topic, default: []].append(stay) }
        defer { beyond = [] }
        let early = beyond.map {
            "the hub took all before @\($0.received) for received on \(Self.text($0.topic)), "
                + "and had sent what is before @\($0.sent)"
        }
        return early + (recordsEach ? unrecorded() + unread() : []) + (isScarce ? absent(stays) : [])
            + undead(stays, joined)
    }

    /// Returns the received changes that are neither recorded as sent nor reported as missing.
    private func unrecorded() -> [String] {
        var recorded: [[UInt8]: Set<UInt64>] = [:]
        var sessions: [[UInt8]: Set<UInt64>] = [:]
        for (seat, topic) in topics { sessions[topic, default: []].insert(seat.session) }
        // If a channel's join and end both found no room, its deliveries belong to no topic.
        let nobody: [UInt8] = []
        for (seat, offsets) in sent { recorded[topics[seat] ?? nobody, default: []].formUnion(offsets) }
        return heard.filter { topic, offset in
            if [topic, nobody].contains(where: { recorded[$0]?.contains(offset) == true }) { return false }
            guard let known = sessions[topic] else { return book.strangers == 0 }
            return !known.contains { book.lacksDeliveries(of: offset, to: $0) }
        }.map { "somebody on \(Self.text($0.topic)) heard of the change @\($0.offset), which is not recorded as sent" }
    }

    /// Returns the changes that the hub counted as received when their channel ended, but that no client has read.
    private func unread() -> [String] {
        defer { acknowledged = [] }
        return acknowledged.flatMap { seat, topic, offset in
            (sent[seat] ?? []).filter { sent in
                sent < offset && hashes[sent].map { read[topic]?.contains($0) != true } ?? false
            }.sorted().map {
                "the hub took the change @\($0) for received on \(Self.text(topic)), where nobody has read it"
            }
        }
    }

    /// Returns the received changes for which the ledger shows no channel that was joined or may have been. Returns
    /// nothing if notes about channels are missing.
    private func absent(_ stays: [[UInt8]: [Attendance]]) -> [String] {
        guard book.strangers == 0 else { return [] }
        return heard.filter { topic, offset in
            !(stays[topic] ?? []).contains { stay in
                switch stay.reach(of: offset, committed: 0) {
                case .sent, .sentLater, .unknown: true
                case .notYet, .endedBefore: false
                }
            }
        }.map {
            "nobody was on \(Self.text($0.topic)) at the change @\($0.offset), as the ledger has it, which was heard"
        }
    }

    /// Returns the topics for which the ledger shows more joined channels than there are.
    private func undead(_ stays: [[UInt8]: [Attendance]], _ joined: [String: Int]) -> [String] {
        stays.compactMap { topic, stays in
            let (there, really) = (stays.count { $0.end == .none }, joined[Self.text(topic)] ?? 0)
            guard there > really else { return nil }
            return "\(there) are on \(Self.text(topic)), as the ledger has it, and \(really) really"
        }.sorted()
    }

    private static func text(_ topic: [UInt8]) -> String { String(decoding: topic, as: UTF8.self) }

    /// True if the ledger shows that the hub sent the change to the topic's channel.
    func has(_ topic: String, _ offset: UInt64) -> Bool {
        isScarce || stays[Array(topic.utf8)]?.contains { $0.since <= offset && offset < $0.end ?? .max } ?? false
    }
}
