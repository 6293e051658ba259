import Change
import Diagnostics
import Postgres
import System

/// Callbacks with which the catalog's thread writes catalog records to the event log.
public struct CatalogRecording: Sendable {
    /// Writes a record to the log. Returns false if the log cannot accept the record now.
    public var record: @Sendable (CatalogRecord) -> Bool
    /// Returns the log's next offset; nil if it is unknown.
    public var end: @Sendable () -> UInt64?
    /// Returns the log's oldest offset; nil if it is unknown. The call may take a moment.
    public var oldest: @Sendable () -> UInt64?

    public init(
        record: @escaping @Sendable (CatalogRecord) -> Bool, end: @escaping @Sendable () -> UInt64?,
        oldest: @escaping @Sendable () -> UInt64?
    ) {
        self.record = record
        self.end = end
        self.oldest = oldest
    }
}

/// Writer that keeps a record of the current catalog in the event log. It writes one after each change, and again
/// before retention deletes the last one. The catalog's thread owns the writer.
final class CatalogRecorder {
    private let recording: CatalogRecording?
    private let publication: String
    private let adoptions: CatalogAdoptions
    /// Next offset of the log when the newest catalog version arrived. It counts as the version's beginning while no
    /// loop uses any version.
    private var since: UInt64?
    /// Next offset of the log when the first version without a record arrived; nil if all versions have records.
    private var unknownFrom: UInt64?
    private var last: (record: CatalogRecord, at: UInt64)?
    private var hasNews = false
    /// Monotonic time in nanoseconds at which the next record is due.
    private(set) var due = UInt64.max

    init(_ recording: CatalogRecording?, _ adoptions: CatalogAdoptions, publication: String) {
        self.recording = recording
        self.adoptions = adoptions
        self.publication = publication
    }

    /// Records that the socket loops are about to use a version that decides differently from the version before it.
    func publishing(_ version: UInt64) {
        guard let recording else { return }
        adoptions.step(at: version)
        since = recording.end() ?? since
        unknownFrom = unknownFrom ?? since
        hasNews = true
        scheduleSoon()
    }

    /// Makes a record due, because the hub has learned the rights of more roles.
    func learned() {
        guard recording != nil else { return }
        hasNews = true
        scheduleSoon()
    }

    /// Makes a record due after a short delay. A later call does not postpone it, so that a catalog which changes all
    /// the time is still recorded.
    private func scheduleSoon() {
        due = min(due, Clock.monotonicNanoseconds() + Limits.catalogRecordDelay.wholeNanoseconds)
    }

    private func wait(_ delay: Duration) { due = Clock.monotonicNanoseconds() + delay.wholeNanoseconds }

    /// Repeats all queries of the catalog and writes the answers as a record, if one is due. If `isBusy` is true, jobs
    /// are waiting, and the writer postpones the record briefly.
    func work(
        _ reader: CatalogReader, _ view: CatalogView, _ fingerprint: String, isBusy: Bool
    ) throws(PostgresError) {
        guard let recording, Clock.monotonicNanoseconds() >= due else { return }
        guard !isBusy, let span = span(of: view, recording) else { return wait(Limits.catalogRecordDelay) }
        wait(Limits.catalogRecordInterval)
        if !hasNews, last.map({ !isNearRetention($0.at, recording) }) ?? false { return }
        do throws(PostgresError) {
            guard let record = try record(reader, view, fingerprint, span) else {
                return wait(Limits.catalogRecordDelay)
            }
            keep(record, recording)
        } catch {
            // The writer repeats a failed query later. No client waits for a record.
            if error.isConnectionLost { throw error }
        }
    }

    private func keep(_ record: CatalogRecord, _ recording: CatalogRecording) {
        defer { if !hasNews { forgetUnknown() } }
        let isOneStep = record.unknownFrom == record.since
        if let last, isOneStep, last.record.hasSameContent(as: record), !isNearRetention(last.at, recording) {
            hasNews = false
        } else if recording.record(record) {
            last = (record, recording.end() ?? record.since)
            hasNews = false
        }
    }

    private func forgetUnknown() {
        unknownFrom = nil
        adoptions.noted()
    }

    /// Returns the offset from which some loop may have used the version, and the offset from which all loops used it.
    /// Nil while some loops use an older version.
    private func span(of view: CatalogView, _ recording: CatalogRecording) -> (unknownFrom: UInt64, since: UInt64)? {
        switch adoptions.standing(of: view.snapshot.version) {
        case .whole(let first, let last): return (first, last)
        case .underWay: return nil
        case .unheard:
            guard let since = since ?? recording.end() else { return nil }
            self.since = since
            return (min(unknownFrom ?? since, since), since)
        }
    }

    private func roles(_ view: CatalogView) -> [String] { view.roles.tables.keys.sorted() }

    /// True if retention will soon delete the entry at this offset.
    private func isNearRetention(_ place: UInt64, _ recording: CatalogRecording) -> Bool {
        guard let oldest = recording.oldest(), let end = recording.end() else { return false }
        return end > oldest + 1000 && place < oldest + (end - oldest) / 4
    }

    /// Returns the record; nil if the catalog changed while it was queried. The next poll notices the change.
    private func record(
        _ reader: CatalogReader, _ view: CatalogView, _ fingerprint: String,
        _ span: (unknownFrom: UInt64, since: UInt64)
    ) throws(PostgresError) -> CatalogRecord? {
        let roles = roles(view)
        let noted = NotedAnswers(reader.asked)
        _ = try CatalogTrial(noted, publication).view(for: roles)
        _ = try noted.answers(to: [ForeignKeys.statement])
        guard try reader.fingerprint(view.snapshot).text == fingerprint else { return nil }
        return CatalogRecord(
            time: Clock.unixMicroseconds(), since: span.since, unknownFrom: span.unknownFrom,
            serverVersion: UInt32(noted.serverVersion), publication: publication, awaited: [], roles: roles,
            answers: noted.answers)
    }
}
