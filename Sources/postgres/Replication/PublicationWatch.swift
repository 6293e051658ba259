import Diagnostics
import Postgres
import System

/// Regular check that the clients' publication is still the one that the log follows. The stream never delivers changes
/// committed under another publication, and no error reports that. Which tables the publication has is the catalog's
/// matter.
struct PublicationWatch {
    private let keeper: SlotKeeper
    private var nextAt: UInt64

    init(_ keeper: SlotKeeper) {
        self.keeper = keeper
        nextAt = Clock.monotonicNanoseconds() + Limits.publicationWatchInterval.wholeNanoseconds
    }

    /// Looks at the publication when the next check is due. True if changes may be missing, or the publication is gone;
    /// the next stream handles it. A failed query is not repeated at once: if the server is gone, the stream itself
    /// reports it.
    mutating func finds(otherThan followed: UInt32?) -> Bool {
        let now = Clock.monotonicNanoseconds()
        guard now >= nextAt else { return false }
        nextAt = now + Limits.publicationWatchInterval.wholeNanoseconds
        guard let followed, let seen = try? keeper.published() else { return false }
        return Self.isBroken(followed, seen, isSilent: keeper.catalog.serverVersion >= 180_000)
    }

    /// - Parameter isSilent: true for PostgreSQL 18, which streams on without a dropped publication and tells only its
    ///   own log.
    static func isBroken(_ followed: UInt32, _ seen: UInt32?, isSilent: Bool) -> Bool {
        seen.map { $0 != followed } ?? isSilent
    }
}
