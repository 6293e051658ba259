import Bytes
import Change
import Diagnostics
import Synchronization

/// Queue of notes that will be written into the log, in order. Any thread adds notes; the ingest thread writes them.
///
/// The queue has a limit. If it is full, it drops new notes and counts them. The recorded events do not depend on their
/// notes. If the notes have a stand-in for dropped ones, the queue adds it as soon as it has room.
final class NoteQueue<Note: LogNote>: Sendable {
    private struct Waiting {
        var notes: [Note] = []
        var bytes = 0
        /// First of the dropped notes for which the log has no stand-in yet, and their number.
        private var missing: (first: Note, count: Int)?

        private var standIn: Note? { missing.flatMap { $0.first.standIn(for: $0.count) } }

        /// Adds the note, after the stand-in for those that are missing. Drops it if there is no room for it.
        mutating func add(_ note: Note) -> Bool {
            let added = [standIn, note].compactMap(\.self)
            let bytes = added.reduce(bytes) { $0 + $1.byteCount }
            guard note.isStorable, bytes <= Limits.maximumWaitingNoteBytes / (note.yields ? 2 : 1) else {
                missing = (missing?.first ?? note, (missing?.count ?? 0) + 1)
                return false
            }
            notes += added
            self.bytes = bytes
            missing = nil
            return true
        }

        /// Adds the stand-in for those that are missing, once all notes before them have been taken.
        mutating func addStandIn() {
            guard notes.isEmpty, let note = standIn else { return }
            missing = nil
            _ = add(note)
        }
    }

    private let waiting = Mutex(Waiting())
    private let dropped: Counter

    /// Creates the queue.
    ///
    /// - Parameter dropped: the metric that counts dropped notes.
    init(dropped: Counter) { self.dropped = dropped }

    /// Adds notes. Returns false if some of them were dropped.
    @discardableResult
    func record(_ notes: [Note]) -> Bool {
        let dropped = waiting.withLock { waiting in
            var dropped = 0
            for note in notes where !waiting.add(note) { dropped += 1 }
            waiting.addStandIn()
            return dropped
        }
        if dropped > 0 { self.dropped.add(dropped) }
        return dropped == 0
    }

    var isEmpty: Bool { waiting.withLock { $0.notes.isEmpty } }

    /// Returns the oldest notes, as many as fit into one entry. They stay in the queue until `taken` is called.
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

    /// Removes the oldest `count` notes, because they have been written to the log.
    func taken(_ count: Int) {
        waiting.withLock { waiting in
            waiting.bytes -= waiting.notes.prefix(count).reduce(0) { $0 + $1.byteCount }
            waiting.notes.removeFirst(count)
            waiting.addStandIn()
            let isCounted = waiting.notes.isEmpty ? waiting.bytes == 0 : waiting.bytes > 0
            assert(isCounted, "the bytes are those of the notes that wait")
        }
    }
}

/// Queues of everything that is recorded in the log besides changes.
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

/// Allowance for notes: a number of bytes each second on average. Unused bytes are kept, up to a limit.
struct LedgerAllowance {
    private let bytesPerSecond: Int
    private(set) var bytes = Limits.ledgerBurstBytes
    private var refilledAt: UInt64?

    init(bytesPerSecond: Int = Limits.ledgerBytesPerSecond) { self.bytesPerSecond = bytesPerSecond }

    var isLeft: Bool { bytes > 0 }

    /// Adds bytes for the time since the last call. `now` is monotonic time in nanoseconds.
    mutating func refill(at now: UInt64) {
        guard let last = refilledAt else { return refilledAt = now }
        // Only whole seconds count, so that frequent calls do not lose fractions of a byte.
        let seconds = (now - min(now, last)) / 1_000_000_000
        refilledAt = last + seconds * 1_000_000_000
        bytes = min(bytes + Int(min(seconds, 86_400)) * bytesPerSecond, Limits.ledgerBurstBytes)
    }

    mutating func spend(_ spent: Int) { bytes -= spent }
}
