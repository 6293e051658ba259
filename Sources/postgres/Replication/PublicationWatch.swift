import Diagnostics
import Postgres
import System

/// Looks now and then whether the clients' publication is still the one that the log follows, and which tables it has: what
/// is committed while it is another never comes, and nothing else says so.
struct PublicationWatch {
    enum Sighting: Equatable {
        case same
        /// Tables came or went.
        case other(PublishedTables)
        /// Something may be missing, or the publication is gone: the next stream sees to it.
        case broken
    }

    private let keeper: SlotKeeper
    private var nextAt: UInt64

    init(_ keeper: SlotKeeper) {
        self.keeper = keeper
        nextAt = Clock.monotonicNanoseconds() + Limits.publicationWatchInterval.wholeNanoseconds
    }

    /// A question that fails is not asked again at once: the stream itself tells when the server is gone.
    mutating func look(_ followed: PublishedTables?) -> Sighting {
        let now = Clock.monotonicNanoseconds()
        guard now >= nextAt else { return .same }
        nextAt = now + Limits.publicationWatchInterval.wholeNanoseconds
        guard let followed, let seen = try? keeper.published() else { return .same }
        return Self.compare(followed, seen, isSilent: keeper.catalog.serverVersion >= 180_000)
    }

    /// - Parameter isSilent: PostgreSQL 18 streams on without a publication that is gone, and says so to its own log alone.
    static func compare(_ followed: PublishedTables, _ seen: PublishedTables?, isSilent: Bool) -> Sighting {
        guard let seen else { return isSilent ? .broken : .same }
        if followed.breach(by: seen) != nil { return .broken }
        let remembered = seen.remembering(followed, atMost: Limits.maximumFollowedMembers)
        return remembered == followed ? .same : .other(remembered)
    }
}
