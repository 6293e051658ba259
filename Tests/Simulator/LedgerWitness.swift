import Change

/// What the hub writes down of channels, held against what those hear: who is told of a change was there at it, as the ledger
/// has it, and where each delivery is recorded, that one is.
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
    /// By topic, what is recorded as sent there.
    private var sent: [[UInt8]: Set<UInt64>] = [:]
    /// What was heard and has yet to be found among that.
    private var heard: [(topic: [UInt8], offset: UInt64)] = []
    let recordsEach: Bool
    private(set) var found = 0

    init(recordsEach: Bool) { self.recordsEach = recordsEach }

    func take(_ note: LedgerNote) {
        var known = stays[note.topic] ?? []
        defer { stays[note.topic] = known.suffix(Self.kept) }
        switch note.event {
        case .joined:
            known.append(Stay(session: note.session, channel: note.channel, since: note.offset, end: nil))
            if recordsEach { topics[Seat(session: note.session, channel: note.channel)] = note.topic }
        case .left:
            guard let place = known.lastIndex(where: { $0.session == note.session && $0.channel == note.channel })
            else { return }
            known[place].end = note.offset
        case .refused, .renewed, .told, .began, .stands, .reached, .unrecorded, .answered: break
        case .delivered: takeDeliveries(note)
        }
    }

    private func takeDeliveries(_ note: LedgerNote) {
        do {
            try DeliveryBlock.read(note.deliveries.span.bytes, from: note.time) { delivery in
                let seat = Seat(session: delivery.session, channel: delivery.channel)
                guard let topic = topics[seat] else {
                    preconditionFailure("nobody is sent a change who has not joined")
                }
                sent[topic, default: []].insert(delivery.offset)
            }
        } catch {
            preconditionFailure("deliveries that were recorded do not read back: \(error)")
        }
    }

    /// Somebody heard of a change.
    func hears(_ topic: String, _ offset: UInt64) {
        if recordsEach { heard.append((Array(topic.utf8), offset)) }
    }

    /// With it goes what it had not handed over yet.
    func hubDied() { heard = [] }

    /// What was heard and is not recorded as sent, now that all has come to rest.
    func unrecorded() -> [String] {
        defer { heard = [] }
        found += heard.count
        return heard.filter { sent[$0.topic]?.contains($0.offset) != true }.map {
            "somebody on \(String(decoding: $0.topic, as: UTF8.self)) heard of the change @\($0.offset), which is not recorded as sent"
        }
    }

    /// Whether the ledger says that the topic's channel was sent the change.
    func has(_ topic: String, _ offset: UInt64) -> Bool {
        stays[Array(topic.utf8)]?.contains { $0.since <= offset && offset < $0.end ?? .max } ?? false
    }
}
