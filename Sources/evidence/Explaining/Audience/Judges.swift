import Change
import History

/// Explainers (`Explainer`) for the catalogs that were valid at different offsets of the log, each created when first
/// asked for.
public final class Judges {
    private let log: HistoryLog
    private let settings: (CatalogRecord?) throws -> Explainer.Settings?
    private let isOfNow: Bool
    /// Explainers by the offset at which the validity of their catalog record begins. The key nil is for the present
    /// catalog.
    private var known: [UInt64?: Explainer?] = [:]
    /// Explainers by the offset for which they were asked. An offset keeps its explainer, even if the log gets new
    /// catalog records.
    private var places: [UInt64: Explainer?] = [:]
    /// Offsets at which the catalog may have changed, as the log showed at the first question; nil before that.
    private var turns: [PastCatalogs.Turn]?

    /// Creates an empty collection. `settings` returns the settings of the explainer for a catalog record, or for the
    /// present catalog if it gets nil. It returns nil if no catalog is available.
    ///
    /// - Parameter isOfNow: true if all changes are evaluated by the present catalog.
    public init(
        _ log: HistoryLog, isOfNow: Bool, _ settings: @escaping (CatalogRecord?) throws -> Explainer.Settings?
    ) {
        self.log = log
        self.settings = settings
        self.isOfNow = isOfNow
    }

    /// Returns an explainer for each catalog that became valid after the offset `first`, up to and including `last`.
    func judges(after first: UInt64, through last: UInt64) throws -> [Explainer?] {
        if isOfNow { return [] }
        return try allTurns().filter { $0.place > first && $0.place <= last }.map { try judge(at: $0.place) }
    }

    /// Returns `place`, or an earlier offset if a catalog valid at `place` was recorded after the client's return. No
    /// such catalog is valid yet at the earlier offset.
    func beforeTurns(since joined: RecordedNote, _ place: UInt64) throws -> UInt64 {
        isOfNow ? place : PastCatalogs.place(before: try allTurns(), since: joined, place)
    }

    private func allTurns() throws -> [PastCatalogs.Turn] {
        if let turns { return turns }
        let found = try PastCatalogs.turns(of: log)
        turns = found
        return found
    }

    /// Returns the offset of the last change before the client joined.
    func place(at joined: RecordedNote) throws -> UInt64 { try PastCatalogs.place(at: joined, in: log) }

    /// Returns the explainer for a change at the offset; nil if neither the log nor a database has a catalog.
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
