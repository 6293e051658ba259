import Change
import History

/// Judges for the catalogs in force at different places of the log.
public final class Judges {
    private let log: HistoryLog
    private let settings: (CatalogRecord?) throws -> Explainer.Settings?
    private let isOfNow: Bool
    /// Judges by the offset from which their catalog record counts; nil stands for the present catalog.
    private var known: [UInt64?: Explainer?] = [:]
    /// Judges by offset. The same judge is used for an offset again, even if new records arrive in the log.
    private var places: [UInt64: Explainer?] = [:]
    /// Turns of the log at the first question; nil before it.
    private var turns: [PastCatalogs.Turn]?

    /// - Parameter isOfNow: True if the present catalog judges all changes.
    /// - Parameter settings: Settings of the judge by a record of the catalog, or by the present catalog; nil if there is neither.
    public init(
        _ log: HistoryLog, isOfNow: Bool, _ settings: @escaping (CatalogRecord?) throws -> Explainer.Settings?
    ) {
        self.log = log
        self.settings = settings
        self.isOfNow = isOfNow
    }

    /// Returns judges for the catalogs that came into force after one place and up to another.
    func judges(after first: UInt64, through last: UInt64) throws -> [Explainer?] {
        if isOfNow { return [] }
        return try allTurns().filter { $0.place > first && $0.place <= last }.map { try judge(at: $0.place) }
    }

    /// Returns a place at which no catalog counts yet that was written down after a client had come back. The loop at the log's
    /// end may have lagged behind the log: it began to judge by such a catalog at a place from before the return, and later
    /// than the return.
    func beforeTurns(since joined: RecordedNote, _ place: UInt64) throws -> UInt64 {
        if isOfNow { return place }
        let first = try allTurns().first { $0.written > joined.note.time && $0.place <= place }
        let found = first.map { $0.place > 0 ? $0.place - 1 : 0 } ?? place
        assert(found <= place, "a place before a turn does not lie behind it")
        return found
    }

    private func allTurns() throws -> [PastCatalogs.Turn] {
        if let turns { return turns }
        let found = try PastCatalogs.turns(of: log)
        turns = found
        return found
    }

    /// Returns the offset of the last change before a client joined. The note of a join reaches the log a moment later,
    /// after changes committed meanwhile.
    func place(at joined: RecordedNote) throws -> UInt64 {
        var next = joined.place
        var reader = try HistoryReader(log, HistoryQuery(from: .time(joined.note.time), to: .offset(joined.place)))
        if case .change(let change)? = try reader.next() { next = min(next, change.offset) }
        return next > 0 ? next - 1 : 0
    }

    /// Returns the judge for an offset; nil if neither the log nor a database has a catalog.
    public func judge(at place: UInt64) throws -> Explainer? {
        if let judge = places[place] { return judge }
        let judge = try newJudge(at: place)
        places[place] = .some(judge)
        return judge
    }

    private func newJudge(at place: UInt64) throws -> Explainer? {
        let record = isOfNow ? nil : try PastCatalogs.record(of: log, at: place)
        if let judge = known[record?.since] { return judge }
        let judge = try settings(record).map { try Explainer($0) }
        known[record?.since] = .some(judge)
        return judge
    }
}
