/// Last message numbers of clients whose entries a resume registry has dropped, by key. Such a client may return while
/// another client of the same login has an entry: without this memory it would be taken for that one.
///
/// The memory is bounded. What it has forgotten it treats as possible, so that a client is told rather than mistaken.
struct DroppedClients: Sendable {
    private struct Known: Sendable {
        var lastRefs: [UInt32] = []
        /// True if further clients of the key may have been dropped.
        var mayBeMore = false
        /// True if further clients of the key surely have no entry, so that no number says that a client is not one.
        var hasUnnumbered = false
        /// Number that tells the key's place in `order` from earlier ones.
        var serial = 0
    }

    private let maximum: Int
    private var known: [ResumeKey: Known] = [:]
    /// Keys from the oldest to the newest. Elements before `head`, and those with another serial, have been dealt with.
    private var order: [(key: ResumeKey, serial: Int)] = []
    private var head = 0
    private var serial = 0
    private var hasForgotten = false
    private static let maximumOfKey = 8
    /// Number of a client's last messages that may have been lost when its socket broke.
    static let lostOnTheWay: UInt32 = 8

    init(maximum: Int) { self.maximum = maximum }

    /// Records that the registry has dropped a client with this number.
    mutating func note(_ key: ResumeKey, lastRef: UInt32) {
        change(key) { known in
            known.lastRefs.append(lastRef)
            if known.lastRefs.count > Self.maximumOfKey {
                known.lastRefs.removeFirst()
                known.hasUnnumbered = true
            }
        }
    }

    /// Records that clients of the key may have been dropped whose numbers are not known.
    mutating func noteUnknown(_ key: ResumeKey) { change(key) { $0.mayBeMore = true } }

    /// Records that there was no room for an entry of a client.
    mutating func noteWithoutEntry(_ key: ResumeKey) { change(key) { $0.hasUnnumbered = true } }

    /// Records that a client has returned that has no entry. If it is not among the dropped ones, others may be missing
    /// there, too.
    mutating func hasReturned(_ key: ResumeKey, firstRef: UInt32) {
        change(key) { known in
            let below = known.lastRefs.indices.filter { known.lastRefs[$0] < firstRef }
            if let nearest = below.max(by: { known.lastRefs[$0] < known.lastRefs[$1] }) {
                known.lastRefs.remove(at: nearest)
            } else {
                known.mayBeMore = true
            }
        }
    }

    /// True if clients of the key may have been dropped.
    func mayHave(_ key: ResumeKey) -> Bool { known[key] != nil }

    /// True if some clients of the key surely have no entry, and nothing tells who they are.
    func hasUnnumbered(_ key: ResumeKey) -> Bool { known[key]?.hasUnnumbered ?? false }

    /// True if a returning client may be a dropped one with a known number, although an entry of its key may be its own.
    ///
    /// - Parameter closest: the highest number of an entry below `firstRef`.
    func mayBeOne(_ key: ResumeKey, firstRef: UInt32, closest: UInt32) -> Bool {
        let goesOn = firstRef - closest <= Self.lostOnTheWay
        guard let known = known[key] else { return hasForgotten && !goesOn }
        let below = known.lastRefs.filter { $0 < firstRef }
        if below.contains(where: { firstRef - $0 <= Self.lostOnTheWay }) { return true }
        return !goesOn && (known.mayBeMore || !below.isEmpty)
    }

    private mutating func change(_ key: ResumeKey, _ body: (inout Known) -> Void) {
        if known[key] == nil {
            serial += 1
            known[key] = Known(serial: serial)
            order.append((key, serial))
        }
        body(&known[key, default: Known()])
        if let now = known[key], now.lastRefs.isEmpty, !now.mayBeMore, !now.hasUnnumbered { known[key] = nil }
        while known.count > maximum {
            let oldest = order[head]
            head += 1
            guard known[oldest.key]?.serial == oldest.serial else { continue }
            known[oldest.key] = nil
            hasForgotten = true
        }
        guard order.count > 2 * maximum + 1024 else { return }
        order = order[head...].filter { known[$0.key]?.serial == $0.serial }
        head = 0
        assert(order.count == known.count, "each key has one place")
    }
}
