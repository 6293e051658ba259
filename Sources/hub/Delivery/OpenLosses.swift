import Diagnostics

/// Losses of a router since the loop last told clients of losses.
struct OpenLosses {
    /// Channels with too many waiting deliveries, which the hub closes.
    var overfull: [UInt32] = []
    /// Channels that miss something because a question was not answered or could not be asked. The hub tells them.
    var unanswered: Set<UInt32> = []
    /// Channels that got an update without its unchanged values, because the log does not have those. The hub tells
    /// them.
    var lacking: Set<UInt32> = []
    /// Tables from whose views unknown rows may have gone, with the offset of the last such change.
    var unknownDepartures: [UInt32: UInt64] = [:]
    /// Channels that were left out because trying some filter would have taken more work than the allowance.
    var skipped: SkippedListeners

    init(drops: Counter) { skipped = SkippedListeners(drops: drops) }

    /// True if the listener is still to be told of a loss.
    func concern(_ listener: UInt32) -> Bool {
        unanswered.contains(listener) || lacking.contains(listener) || skipped.contains(listener)
    }

    /// Returns the losses and forgets them.
    mutating func take(stopped: Set<UInt32>) -> DeliveryLosses {
        defer { (overfull, unanswered, lacking) = ([], [], []) }
        return DeliveryLosses(
            lacking: lacking.sorted(), overfull: overfull, unanswered: unanswered.sorted(), stopped: stopped.sorted(),
            skipped: skipped.take())
    }
}

/// Listeners that were left out of changes, with a counter of their bindings.
struct SkippedListeners {
    private var listeners: Set<UInt32> = []
    let drops: Counter

    init(drops: Counter) { self.drops = drops }

    mutating func add(_ listener: UInt32) { listeners.insert(listener) }

    func contains(_ listener: UInt32) -> Bool { listeners.contains(listener) }

    mutating func take() -> [UInt32] {
        defer { listeners = [] }
        return listeners.sorted()
    }
}
