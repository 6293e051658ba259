import Change
import History
import TestSupport

/// What the hub writes down of channels, held against what those hear: who is told of a change was there at it, as the ledger
/// has it, and where each delivery is recorded, that one is. Where the log has no room for notes now and then, nobody is said
/// to be there who has gone, and what is not in it is not said to be all.
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

    /// By topic, the latest at the end.
    private var stays: [[UInt8]: [Stay]] = [:]
    private static let kept = 256
    private var topics: [Seat: [UInt8]] = [:]
    /// What is recorded as sent.
    private var sent: [Seat: Set<UInt64>] = [:]
    /// What was heard and has yet to be looked for in the ledger.
    private var heard: [(topic: [UInt8], offset: UInt64)] = []
    let recordsEach: Bool
    private(set) var found = 0

    /// What can be read of the log.
    private var book = AttendanceBook()
    /// Nil where there is always room.
    private var scarcity: SeededRandom?
    private var refusals = 0
    /// Nothing is refused for now.
    var isCalm = false

    init(recordsEach: Bool, scarcity: SeededRandom?) {
        self.recordsEach = recordsEach
        self.scarcity = scarcity
    }

    var isScarce: Bool { scarcity != nil }

    /// False where there is no room for it.
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

    /// Somebody heard of a change.
    func hears(_ topic: String, _ offset: UInt64) {
        if recordsEach || isScarce { heard.append((Array(topic.utf8), offset)) }
    }

    /// With it goes what it had not handed over yet. The next one says that it began.
    func hubDied(at time: Int64, place: UInt64) {
        heard = []
        book.add(LedgerNote(.began, time: time, session: 0, channel: 0), at: place)
    }

    /// What is wrong with the ledger, now that all has come to rest.
    ///
    /// - Parameter joined: how many are joined to each topic.
    func complaints(_ joined: [String: Int]) -> [String] {
        defer { heard = [] }
        found += heard.count
        var stays: [[UInt8]: [Attendance]] = [:]
        for stay in book.all { stays[stay.joined.note.topic, default: []].append(stay) }
        return (recordsEach ? unrecorded() : []) + (isScarce ? absent(stays) : []) + undead(stays, joined)
    }

    /// What was heard and is neither recorded as sent nor said to be missing.
    private func unrecorded() -> [String] {
        var recorded: [[UInt8]: Set<UInt64>] = [:]
        var sessions: [[UInt8]: Set<UInt64>] = [:]
        for (seat, topic) in topics { sessions[topic, default: []].insert(seat.session) }
        // Whose join and end there was no room for is nobody's.
        let nobody: [UInt8] = []
        for (seat, offsets) in sent { recorded[topics[seat] ?? nobody, default: []].formUnion(offsets) }
        return heard.filter { topic, offset in
            if [topic, nobody].contains(where: { recorded[$0]?.contains(offset) == true }) { return false }
            guard let known = sessions[topic] else { return book.strangers == 0 }
            return !known.contains { book.lacksDeliveries(of: offset, to: $0) }
        }.map { "somebody on \(Self.text($0.topic)) heard of the change @\($0.offset), which is not recorded as sent" }
    }

    /// Who heard of a change was there, or may have been, or there was no room for who was.
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

    /// Nobody is there who has gone.
    private func undead(_ stays: [[UInt8]: [Attendance]], _ joined: [String: Int]) -> [String] {
        stays.compactMap { topic, stays in
            let (there, really) = (stays.count { $0.end == .none }, joined[Self.text(topic)] ?? 0)
            guard there > really else { return nil }
            return "\(there) are on \(Self.text(topic)), as the ledger has it, and \(really) really"
        }.sorted()
    }

    private static func text(_ topic: [UInt8]) -> String { String(decoding: topic, as: UTF8.self) }

    /// Whether the ledger says that the topic's channel was sent the change.
    func has(_ topic: String, _ offset: UInt64) -> Bool {
        isScarce || stays[Array(topic.utf8)]?.contains { $0.since <= offset && offset < $0.end ?? .max } ?? false
    }
}
