import Bytes
import Change
import Messages
import Protocol

/// Messages to topics in the current entry of the log. No policy applies to them on delivery, so they do not wait for
/// the catalog.
struct EntryMessages: ~Copyable {
    /// True if the messages of the current log entry have been gathered.
    private(set) var areGathered = false
    private var met = BroadcastGathering()
    private var flaws: FlawLog

    init(_ flaws: FlawLog) { self.flaws = flaws }

    /// Gathers those messages of a log entry that some channel on this loop receives. The entry begins at offset
    /// `first`.
    mutating func gather(
        _ payload: RawSpan, from first: UInt64, _ layouts: MessageLayouts, _ findings: inout LogFindings,
        _ budget: inout TurnBudget, _ hears: (RawSpan, Bool) -> Bool
    ) throws {
        areGathered = true
        var part = try TransactionPart(payload)
        var offset = first
        while let change = try part.next() {
            defer { offset += 1 }
            guard let layout = layouts.layout(of: change.relation) else { continue }
            if change.isForgotten { findings.noteForgottenMessage() }
            switch try DatabaseMessage.read(change, layout) {
            case .noInsert: continue
            case .flawed(let flaw): DatabaseMessage.note(flaw, &flaws)
            case .message(let message):
                guard hears(message.topic, message.isPrivate) else { continue }
                budget.spend(deliveries: 1)
                add(message, at: offset)
            }
        }
    }

    private mutating func add(_ message: borrowing DatabaseMessage, at offset: UInt64) {
        guard message.isBinary else {
            let broadcast = Broadcast(.json, event: message.event, payload: message.json, id: message.id)
            return met.add(broadcast, topic: message.topic, isPrivate: message.isPrivate, offset: offset)
        }
        var bytes = ByteWriter(capacity: message.payloadByteCount + 1)
        message.appendBinary(to: &bytes)
        let broadcast = Broadcast(.binary, event: message.event, payload: bytes.bytes, id: message.id)
        met.add(broadcast, topic: message.topic, isPrivate: message.isPrivate, offset: offset)
    }

    /// Removes and returns the messages gathered from the current log entry; nil if there are none.
    mutating func take() -> TurnBroadcasts? { met.take() }

    /// Resets the progress on the current log entry, because the entry is done or will be read again.
    mutating func finishEntry() { areGathered = false }
}
