import Change
import Diagnostics
import Postgres
import System

/// Where records of the catalog go.
public struct CatalogRecording: Sendable {
    /// False where it cannot be kept now.
    public var record: @Sendable (CatalogRecord) -> Bool
    /// Of the log: its next offset, and its oldest one, which may take a moment to find out.
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

/// Sees to it that the log has what the catalog says, each time that it says something else, and for as long as changes are
/// kept that were judged by it. The catalog's thread owns it.
final class CatalogScribe {
    private let recording: CatalogRecording?
    private let publication: String
    private let adoptions: CatalogAdoptions
    /// Where nobody judges: the log's end when the newest version came, and when the first did that was not noted.
    private var since: UInt64?
    private var unknownFrom: UInt64?
    private var last: (record: CatalogRecord, at: UInt64)?
    private var hasNews = false
    /// Monotonic time.
    private(set) var due = UInt64.max

    init(_ recording: CatalogRecording?, _ adoptions: CatalogAdoptions, publication: String) {
        self.recording = recording
        self.adoptions = adoptions
        self.publication = publication
    }

    /// A version that others are about to judge by, and by which others are judged than before.
    func publishing(_ version: UInt64) {
        guard let recording else { return }
        adoptions.step(at: version)
        since = recording.end() ?? since
        unknownFrom = unknownFrom ?? since
        hasNews = true
        comeSoon()
    }

    /// More is known of roles.
    func learned() {
        guard recording != nil else { return }
        hasNews = true
        comeSoon()
    }

    /// No later for what comes meanwhile: a catalog that becomes another all the time is written down all the same.
    private func comeSoon() {
        due = min(due, Clock.monotonicNanoseconds() + Limits.catalogRecordDelay.wholeNanoseconds)
    }

    private func wait(_ delay: Duration) { due = Clock.monotonicNanoseconds() + delay.wholeNanoseconds }

    /// Asks for everything anew, noting the answers. `isBusy`: others wait, and it can be done a moment later.
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
            // What cannot be asked now is asked later; nobody is served by it.
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

    /// From where on it may have been that somebody judged by the version, and from where on all did. Nil while some do not.
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

    /// The log is close to letting go of what stands there.
    private func isAboutToGo(_ place: UInt64, _ recording: CatalogRecording) -> Bool {
        guard let oldest = recording.oldest(), let end = recording.end() else { return false }
        return end > oldest + 1000 && place < oldest + (end - oldest) / 4
    }

    /// Nil where the catalog became another meanwhile: that is noticed at the next look.
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
