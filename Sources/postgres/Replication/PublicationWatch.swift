import Diagnostics
import Postgres
import System

/// Regular check that the clients' publication is still the one that the log follows. If it was dropped and created
/// again, the stream does not deliver some changes, and no error reports that. The check does not cover which tables
/// the publication has; the catalog's thread does that.
struct PublicationWatch {
    private let keeper: SlotKeeper
    private var nextAt: UInt64

    init(_ keeper: SlotKeeper) {
        self.keeper = keeper
        nextAt = Clock.monotonicNanoseconds() + Limits.publicationWatchInterval.wholeNanoseconds
    }

    /// Checks the publication if a check is due. Returns true if it was dropped or replaced, so that changes may be
    /// missing; the next stream handles this. A failed query is not repeated before the next check. If the server
    /// cannot be reached, the stream itself reports it.
    mutating func finds(otherThan followed: UInt32?) -> Bool {
        let now = Clock.monotonicNanoseconds()
        guard now >= nextAt else { return false }
        nextAt = now + Limits.publicationWatchInterval.wholeNanoseconds
        guard let followed, let seen = try? keeper.published() else { return false }
        return Self.isBroken(followed, seen, isSilent: keeper.catalog.serverVersion >= 180_000)
    }

    /// Returns true if the publication was replaced, or was dropped without an error in the stream.
    ///
    /// - Parameter isSilent: true for PostgreSQL 18. It continues to stream without a dropped publication, and reports
    ///   that only in its own log.
    static func isBroken(_ followed: UInt32, _ seen: UInt32?, isSilent: Bool) -> Bool {
        seen.map { $0 != followed } ?? isSilent
    }
}
