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

    /// Returns a place at which no catalog counts yet that was written down after a client had come back.
    func beforeTurns(since joined: RecordedNote, _ place: UInt64) throws -> UInt64 {
        isOfNow ? place : PastCatalogs.place(before: try allTurns(), since: joined, place)
    }

    private func allTurns() throws -> [PastCatalogs.Turn] {
        if let turns { return turns }
        let found = try PastCatalogs.turns(of: log)
        turns = found
        return found
    }

    /// Returns the offset of the last change before a client joined.
    func place(at joined: RecordedNote) throws -> UInt64 { try PastCatalogs.place(at: joined, in: log) }

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
