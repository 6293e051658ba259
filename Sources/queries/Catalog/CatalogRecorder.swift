import Change
import Diagnostics
import Postgres
import System

/// Callbacks through which the catalog's thread writes records to the log.
public struct CatalogRecording: Sendable {
    /// Callback that writes a record to the log. Returns false if the record cannot be kept now.
    public var record: @Sendable (CatalogRecord) -> Bool
    /// Callback that returns the log's next offset. `oldest` returns its oldest offset, which may take a moment.
    public var end: @Sendable () -> UInt64?
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

/// Writer of catalog records. Keeps the current catalog in the log after each change, for as long as the log has
/// changes that were decided by it. The catalog's thread owns the writer.
final class CatalogRecorder {
    private let recording: CatalogRecording?
    private let publication: String
    private let adoptions: CatalogAdoptions
    /// Log end when the newest version arrived, used while no loop has adopted a version. `unknownFrom` is the log end
    /// when the first unrecorded version arrived.
    private var since: UInt64?
    private var unknownFrom: UInt64?
    private var last: (record: CatalogRecord, at: UInt64)?
    private var hasNews = false
    /// Monotonic time at which the next record is due.
    private(set) var due = UInt64.max

    init(_ recording: CatalogRecording?, _ adoptions: CatalogAdoptions, publication: String) {
        self.recording = recording
        self.adoptions = adoptions
        self.publication = publication
    }

    /// Notes a version that loops are about to use, and that decides differently from the version before it.
    func publishing(_ version: UInt64) {
        guard let recording else { return }
        adoptions.step(at: version)
        since = recording.end() ?? since
        unknownFrom = unknownFrom ?? since
        hasNews = true
        comeSoon()
    }

    /// Notes that the hub has learned more about roles.
    func learned() {
        guard recording != nil else { return }
        hasNews = true
        comeSoon()
    }

    /// Makes a record due soon. Later news does not postpone it, so that a catalog that changes continually is still
    /// recorded.
    private func comeSoon() {
        due = min(due, Clock.monotonicNanoseconds() + Limits.catalogRecordDelay.wholeNanoseconds)
    }

    private func wait(_ delay: Duration) { due = Clock.monotonicNanoseconds() + delay.wholeNanoseconds }

    /// Repeats all queries and records the answers. If `isBusy` (jobs wait), postpones the record briefly.
    func work(
        _ reader: CatalogReader, _ view: CatalogView, _ fingerprint: String, isBusy: Bool
    ) throws(PostgresError) {
        guard let recording, Clock.monotonicNanoseconds() >= due else { return }
        guard !isBusy, let span = span(of: view, recording) else { return wait(Limits.catalogRecordDelay) }
        wait(Limits.catalogRecordInterval)
        if !hasNews, last.map({ !isAboutToGo($0.at, recording) }) ?? false { return }
        do throws(PostgresError) {
            guard let record = try record(reader, view, fingerprint, span) else {
                return wait(Limits.catalogRecordDelay)
            }
            keep(record, recording)
        } catch {
            // A query that fails now is repeated later. No client waits for a record.
            if error.isConnectionLost { throw error }
        }
    }

    private func keep(_ record: CatalogRecord, _ recording: CatalogRecording) {
        defer { if !hasNews { forgetUnknown() } }
        let isOneStep = record.unknownFrom == record.since
        if let last, isOneStep, last.record.saysTheSame(as: record), !isAboutToGo(last.at, recording) {
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

    /// Returns the offset from which some loop may have used the version, and the offset from which all loops did. Nil
    /// while some do not use it yet.
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

    /// True if retention is about to delete the entry at this offset.
    private func isAboutToGo(_ place: UInt64, _ recording: CatalogRecording) -> Bool {
        guard let oldest = recording.oldest(), let end = recording.end() else { return false }
        return end > oldest + 1000 && place < oldest + (end - oldest) / 4
    }

    /// Returns the record; nil if the catalog changed during the queries. The next poll notices that change.
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
