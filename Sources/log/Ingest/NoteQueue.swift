import Bytes
import Change
import Diagnostics
import Synchronization

/// Notes on their way into the log: in from any thread, out to the ingest thread, in order.
///
/// It is bounded: what the log cannot take in time is dropped and counted. What the notes tell of does not depend on them.
final class NoteQueue<Note: LogNote>: Sendable {
    private struct Waiting {
        var notes: [Note] = []
        var bytes = 0
    }

    private let waiting = Mutex(Waiting())
    private let dropped: Counter

    /// - Parameter dropped: counts the notes that are.
    init(dropped: Counter) { self.dropped = dropped }

    /// False where some were dropped.
    @discardableResult
    func record(_ notes: [Note]) -> Bool {
        let dropped = waiting.withLock { waiting in
            var dropped = 0
            for note in notes {
                let bytes = note.byteCount
                let most = Limits.maximumWaitingNoteBytes / (note.yields ? 2 : 1)
                guard note.isStorable, waiting.bytes + bytes <= most else {
                    dropped += 1
                    continue
                }
                waiting.notes.append(note)
                waiting.bytes += bytes
            }
            return dropped
        }
        if dropped > 0 { self.dropped.add(dropped) }
        return dropped == 0
    }

    var isEmpty: Bool { waiting.withLock { $0.notes.isEmpty } }

    /// The oldest notes, as many as one entry holds. They stay until they are said to be taken.
    func next() -> [Note] {
        waiting.withLock { waiting in
            var bytes = 0
            let entry = waiting.notes.prefix { note in
                bytes += note.byteCount
                return bytes <= Limits.noteEntryBytes
            }
            return entry.isEmpty ? Array(waiting.notes.prefix(1)) : Array(entry)
        }
    }

    /// The log has the oldest `count`.
    func taken(_ count: Int) {
        waiting.withLock { waiting in
            waiting.bytes -= waiting.notes.prefix(count).reduce(0) { $0 + $1.byteCount }
            waiting.notes.removeFirst(count)
        }
    }
}

/// What the log has beside the changes, until it has it.
final class WaitingNotes: Sendable {
    let presence: NoteQueue<PresenceMark>
    let ledger: NoteQueue<LedgerNote>
    let catalogs: NoteQueue<CatalogRecord>
    let marks: NoteQueue<OperatorMark>
    let rows: NoteQueue<KeptRows>

    init(_ metrics: ProjectMetrics) {
        presence = NoteQueue(dropped: metrics.presenceMarksDropped)
        ledger = NoteQueue(dropped: metrics.ledgerNotesDropped)
        catalogs = NoteQueue(dropped: metrics.ledgerNotesDropped)
        marks = NoteQueue(dropped: metrics.ledgerNotesDropped)
        rows = NoteQueue(dropped: metrics.ledgerNotesDropped)
    }

    var isEmpty: Bool {
        presence.isEmpty && ledger.isEmpty && catalogs.isEmpty && marks.isEmpty && rows.isEmpty
    }
}

/// What the ledger may take of the log: so much a second on average, and what was not used lately.
struct LedgerAllowance {
    private let bytesPerSecond: Int
    private(set) var bytes = Limits.ledgerBurstBytes
    private var refilledAt: UInt64?

    init(bytesPerSecond: Int = Limits.ledgerBytesPerSecond) { self.bytesPerSecond = bytesPerSecond }

    var isLeft: Bool { bytes > 0 }

    mutating func refill(at now: UInt64) {
        guard let last = refilledAt else { return refilledAt = now }
        // By whole seconds, so that nothing is lost where it is asked often.
        let seconds = (now - min(now, last)) / 1_000_000_000
        refilledAt = last + seconds * 1_000_000_000
        bytes = min(bytes + Int(min(seconds, 86_400)) * bytesPerSecond, Limits.ledgerBurstBytes)
    }

    mutating func spend(_ spent: Int) { bytes -= spent }
}
