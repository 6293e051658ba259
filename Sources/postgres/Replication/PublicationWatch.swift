import Diagnostics
import Postgres
import System

/// Regular check of the clients' publication: whether it is still the one that the log follows, and which tables it
/// has. The stream never delivers changes committed under another publication, and no error reports that.
struct PublicationWatch {
    enum Sighting: Equatable {
        case same
        /// Tables were added or removed.
        case other(PublishedTables)
        /// Changes may be missing, or the publication is gone. The next stream handles it.
        case broken
    }

    private let keeper: SlotKeeper
    private var nextAt: UInt64

    init(_ keeper: SlotKeeper) {
        self.keeper = keeper
        nextAt = Clock.monotonicNanoseconds() + Limits.publicationWatchInterval.wholeNanoseconds
    }

    /// Looks at the publication when the next check is due. A failed query is not repeated at once: if the server is
    /// gone, the stream itself reports it.
    mutating func look(_ followed: PublishedTables?) -> Sighting {
        let now = Clock.monotonicNanoseconds()
        guard now >= nextAt else { return .same }
        nextAt = now + Limits.publicationWatchInterval.wholeNanoseconds
        guard let followed, let seen = try? keeper.published() else { return .same }
        return Self.compare(followed, seen, isSilent: keeper.catalog.serverVersion >= 180_000)
    }

    /// - Parameter isSilent: true for PostgreSQL 18, which streams on without a dropped publication and tells only its
    ///   own log.
    static func compare(_ followed: PublishedTables, _ seen: PublishedTables?, isSilent: Bool) -> Sighting {
        guard let seen else { return isSilent ? .broken : .same }
        if followed.breach(by: seen) != nil { return .broken }
        let remembered = seen.remembering(followed, atMost: Limits.maximumFollowedMembers)
        return remembered == followed ? .same : .other(remembered)
    }
}
