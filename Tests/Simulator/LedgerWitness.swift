import Change

/// What the hub writes down of channels, held against what those hear: who is told of a change was there at it, as the ledger
/// has it.
final class LedgerWitness {
    private struct Stay {
        let session: UInt64
        let channel: UInt32
        let since: UInt64
        var end: UInt64?
    }

    /// By topic, the latest at the end.
    private var stays: [[UInt8]: [Stay]] = [:]
    private static let kept = 256

    func take(_ note: LedgerNote) {
        var known = stays[note.topic] ?? []
        defer { stays[note.topic] = known.suffix(Self.kept) }
        switch note.event {
        case .joined:
            known.append(Stay(session: note.session, channel: note.channel, since: note.offset, end: nil))
        case .left:
            guard let place = known.lastIndex(where: { $0.session == note.session && $0.channel == note.channel })
            else { return }
            known[place].end = note.offset
        case .refused, .renewed, .told, .began, .stands, .reached, .delivered, .unrecorded, .answered: break
        }
    }

    /// Whether the ledger says that the topic's channel was sent the change.
    func has(_ topic: String, _ offset: UInt64) -> Bool {
        stays[Array(topic.utf8)]?.contains { $0.since <= offset && offset < $0.end ?? .max } ?? false
    }
}
