import Auth
import Catalog
import Diagnostics
import Synchronization

/// Tokens and rights of one project's clients on one loop: what is remembered of tokens, when the next one expires, and
/// the questions about rights that wait for PostgreSQL's answer.
struct LoopRights: ~Copyable {
    var tokens: TokenCache
    /// Roles that clients may not have, as of the last check of all channels.
    var privilegedRoles: PrivilegedRoles?
    /// Lower bound of the next token expiry among the channels, in Unix seconds.
    private(set) var nextExpiry = Int64.max
    /// Progress of asking again for the rights of private channels.
    var review = RightsReview()
    /// Work that waits for an answer about rights, by ticket.
    var waiting: [UInt64: ProjectLoop.RightsWaiting] = [:]

    init(_ project: Project) { tokens = Self.cache(project) }

    /// Forgets remembered tokens, because the project's keys have changed.
    mutating func takeKeys(of project: Project) { tokens = Self.cache(project) }

    private static func cache(_ project: Project) -> TokenCache {
        TokenCache(project.verifier.withLock { $0 }, capacity: Limits.rememberedTokens)
    }

    /// Notes that a channel's token expires at `expiry`, or has to be looked at then.
    mutating func noteExpiry(_ expiry: Int64) { nextExpiry = min(nextExpiry, expiry) }

    /// Returns true if a token may have expired. The caller then looks at all channels, and notes each expiry anew.
    mutating func beginExpiryCheck(at now: Int64) -> Bool {
        guard now >= nextExpiry else { return false }
        nextExpiry = .max
        return true
    }
}
