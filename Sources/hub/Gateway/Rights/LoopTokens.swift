import Auth
import Bytes
import Catalog
import Channels
import Diagnostics
import Net
import Positions
import Protocol
import Settings
import Snapshots
import Synchronization

/// Tokens of one project's clients on one loop: it verifies them, checks their roles and watches their expiry.
final class LoopTokens: LoopPart {
    unowned let home: ProjectLoop
    private var cache: TokenCache
    /// Roles that clients may not have, as they were when all channels were last checked for them.
    private var privilegedRoles: PrivilegedRoles?
    /// Unix time in seconds before which no channel's token expires.
    private(set) var nextExpiry = Int64.max

    init(of home: ProjectLoop) {
        self.home = home
        cache = Self.cache(home.project)
    }

    private var now: Int64 { home.now }

    /// Forgets which tokens were verified, because the project's keys have changed.
    func takeKeys() { cache = Self.cache(project) }

    private static func cache(_ project: Project) -> TokenCache {
        TokenCache(project.verifier.withLock { $0 }, capacity: Limits.rememberedTokens)
    }

    /// Returns the holder that a refused token names; nil if the token is not signed by a known key.
    func holder(ofRefused token: some StringProtocol) -> TokenHolder? {
        cache.holder(ofRefused: Array(token.utf8).rawBytes)
    }

    /// Records that a channel's token must be checked at `expiry`, in Unix seconds.
    private func noteExpiry(_ expiry: Int64) { nextExpiry = min(nextExpiry, expiry) }

    /// Returns true if a token may have expired. The caller must then check all channels and record their expiry again.
    private func beginExpiryCheck(at now: Int64) -> Bool {
        guard now >= nextExpiry else { return false }
        nextExpiry = .max
        return true
    }

    /// Verifies a token and its role. Counts and logs a refusal.
    func verify(_ token: [UInt8]) throws(TokenError) -> Claims {
        do throws(TokenError) {
            let claims = try cache.verify(token.rawBytes, at: now)
            try checkRole(of: claims)
            try checkBlocks(of: claims)
            return claims
        } catch {
            note(error)
            throw error
        }
    }

    private func note(_ error: TokenError) {
        if let refusal = error.refusal { project.refused(refusal, at: loop.now) }
    }

    /// Refuses a user or login that an operator has blocked.
    private func checkBlocks(of claims: Claims) throws(TokenError) {
        if let end = project.blocklist.end(for: claims, at: now) { throw .blocked(seconds: end - now) }
    }

    /// Checks claims again that were verified before, for expiry and role.
    func stillGood(_ claims: Claims) throws(TokenError) -> Claims {
        do throws(TokenError) {
            try claims.check(at: now)
            try checkRole(of: claims)
            try checkBlocks(of: claims)
            return claims
        } catch {
            note(error)
            throw error
        }
    }

    private func checkRole(of claims: Claims) throws(TokenError) {
        guard project.permits(claims.role.text) else { throw .roleRefused }
    }

    /// Closes channels with a role that clients may no longer have. Does nothing if the list of privileged roles is
    /// unchanged.
    func expelRefusedRoles(_ snapshot: CatalogSnapshot) {
        guard snapshot.privilegedRoles != privilegedRoles else { return }
        privilegedRoles = snapshot.privilegedRoles
        for place in home.channels.indices {
            guard let channel = home.channels[place] else { continue }
            guard !project.settings.roles.permits(channel.claims.role.text, privilegedRoles) else { continue }
            if channel.join.isAnswered {
                home.expel(channel, TokenError.roleRefused.clientText)
            } else {
                home.joins.take(.refused(TokenError.roleRefused.joinReason), channel)
            }
        }
    }

    /// Verifies a token that a client sent for a joined channel, and replaces the channel's token with it.
    func refresh(_ id: ChannelID, _ number: UInt16, _ token: [UInt8], _ session: Session) {
        var actions: [ChannelAction] = []
        do throws(TokenError) {
            let claims = try verify(token)
            guard session.machine?.refreshSucceeded(id, number: number) == true,
                let place = session.channel(id), let channel = home.channels[place]
            else { return }
            if channel.claims.areFrom(token.rawBytes) { return }
            if channel.conversation.isPrivate {
                home.rights.askForReadRights(channel, .refresh(claims))
            } else {
                take(claims, channel)
            }
        } catch {
            session.machine?.refreshFailed(id, number: number, error.clientText.ending, into: &actions)
        }
        clients.perform(actions, for: session)
    }

    /// Replaces the channel's claims with those of a new token.
    func take(_ claims: Claims, _ channel: Channel) {
        // The token was verified before PostgreSQL was asked for rights; an operator may have blocked its user since.
        if let end = project.blocklist.end(for: claims, at: now) {
            return home.expel(channel, TokenError.blocked(seconds: end - now).clientText)
        }
        let isSameRole = channel.claims.role.equals(claims.role)
        let isSame = isSameRole && channel.claims.json.equals(claims.json)
        let isSomebodyElse = !isSameRole || !channel.claims.subject.equals(claims.subject)
        channel.claims = claims
        if !isSame { home.ledger.noteRenewal(channel) }
        home.returns.reenter(channel)
        watchExpiry(channel)
        if isSomebodyElse { channel.delivery.follower?.reports.dropWaiting(channel) }
        if isSomebodyElse { home.snapshots.fail(channel, .tokenChanged) }
        // The log does not repeat rows of the former holder's snapshot, so the new holder may lack rows.
        if isSomebodyElse { home.take(.holderReplaced, channel) }
        // The holder prepared for the live follower has the former claims.
        home.letGoOfNextHolder(channel)
        // Policies may read any claim, so they must be applied again unless all claims are equal.
        let isJudgedAsBefore = isSame || isSameRole && channel.delivery.holder == nil
        if isJudgedAsBefore {
            home.reports.sayAgain(channel)
        } else {
            channel.delivery.follower?.resubscribe(channel.place, channel)
        }
    }

    func watchExpiry(_ channel: Channel) {
        noteExpiry(channel.claims.expiry)
        if let timer = channel.timers.expiry { loop.cancel(timer) }
        let left = max(0, channel.claims.expiry - now)
        let wait = min(left, Limits.tokenCheckInterval.components.seconds)
        channel.timers.expiry = loop.after(
            nanoseconds: UInt64(wait) * 1_000_000_000,
            token: home.token(channel) { .expiry(channel: $0, generation: $1) })
    }

    /// Closes channels with expired tokens before the loop delivers anything to them. Tokens expire at whole seconds,
    /// so the loop checks all channels at most once a second.
    func closeExpired() {
        let now = now
        guard beginExpiryCheck(at: now) else { return }
        for place in home.channels.indices {
            guard let channel = home.channels[place], channel.isOpen else { continue }
            if channel.claims.expiry > now {
                noteExpiry(channel.claims.expiry)
            } else {
                tokenIsDue(place, TimerToken.cut(channel.id.incarnation))
            }
        }
    }

    /// True if the hub is asking for the rights of a newer token of the same user, which arrived before the former one
    /// expired.
    private func isBeingRenewed(_ channel: Channel) -> Bool {
        guard let newer = home.rights.claimsAskedAbout(for: channel), newer.role.equals(channel.claims.role),
            newer.subject.equals(channel.claims.subject)
        else { return false }
        return newer.expiry > now
    }

    private func watchRenewal(_ channel: Channel) {
        noteExpiry(now + 1)
        channel.timers.expiry = loop.after(
            nanoseconds: 1_000_000_000, token: home.token(channel) { .expiry(channel: $0, generation: $1) })
    }

    func tokenIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = home.channel(place, generation) else { return }
        if let timer = channel.timers.expiry { loop.cancel(timer) }
        channel.timers.expiry = nil
        do throws(TokenError) {
            try channel.claims.check(at: now)
            watchExpiry(channel)
        } catch {
            if isBeingRenewed(channel) { return watchRenewal(channel) }
            var actions: [ChannelAction] = []
            channel.session.machine?.expel(channel.id, error.clientText.ending, into: &actions)
            clients.perform(actions, for: channel.session)
        }
    }
}
