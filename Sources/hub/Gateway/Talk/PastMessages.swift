import Delivery
import Messages

/// Database messages that a catch-up follower reads. Before it delivers them, the archive answers which of them were
/// deleted or changed later.
struct PastMessages {
    private var revisions = MessageRevisions.unknown(of: 0..<0)
    /// Messages that wait for the archive's answer; nil if none do.
    private var waiting: TurnBroadcasts?

    /// Returns true if all messages of the batch can be delivered now. Otherwise they wait for the archive, and `take`
    /// returns them.
    mutating func isReady(for batch: TurnBroadcasts) -> Bool {
        assert(waiting == nil, "the follower waits while messages do")
        if batch.entries.allSatisfy({ revisions.offsets.contains($0.offset ?? 0) }) { return true }
        waiting = batch
        return false
    }

    /// Accepts the archive's answer. Returns the messages that waited for it; nil if there are none.
    mutating func take(_ answer: MessageRevisions?) -> TurnBroadcasts? {
        guard let batch = waiting.take() else { return nil }
        let asked = (batch.entries.first?.offset ?? 0)..<(batch.entries.last?.offset ?? 0) + 1
        if let answer, answer.offsets.contains(asked.lowerBound), answer.offsets.upperBound >= asked.upperBound {
            revisions = answer
        } else {
            revisions = .unknown(of: asked)
        }
        return batch
    }

    func fate(of offset: UInt64) -> MessageRevisions.Fate { revisions.fate(of: offset) }
}
