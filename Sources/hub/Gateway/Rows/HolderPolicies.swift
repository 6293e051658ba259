import Auth
import Bytes
import Catalog
import Change
import Delivery
import Diagnostics
import Judging
import Matching
import Net
import Policy
import Positions
import System

/// Policies of the holders on one follower. The hub evaluates a policy for the holder's claims and memberships, and
/// again when these memberships change.
final class HolderPolicies {
    unowned let follower: Follower
    /// Holders of the channels that need policies.
    private var holders = HolderTable()
    /// True if a timer is running at whose end `unwindingIsDue` is called.
    private var isUnwindTimed = false

    init(of follower: Follower) { self.follower = follower }

    private var home: ProjectLoop { follower.home }
    private var project: Project { home.project }
    private var loop: SocketLoop { home.loop }

    enum Holding {
        /// Policies for the holder, by the identity of their `PolicyBinding`.
        case ready([ObjectIdentifier: ActivePolicy])
        /// Answers of PostgreSQL about policies are missing. The channel is bound again when they arrive.
        case waiting
    }

    // MARK: Holding

    /// Returns the policies that the channel's bindings need, evaluated for its holder.
    func hold(_ outcomes: [BindingOutcome], _ place: UInt32, _ channel: Channel) -> Holding {
        var ready: [ObjectIdentifier: ActivePolicy] = [:]
        var needed: Set<AskedTerm> = []
        var isWaiting = false
        for case .tables(let tables) in outcomes {
            for table in tables {
                guard let policy = table.policy, ready[ObjectIdentifier(policy)] == nil else { continue }
                let holder = holder(of: channel)
                switch held(policy, holder) {
                case .needs(let terms): needed.formUnion(terms)
                case .outdated:
                    follower.bindLater(channel)
                    isWaiting = true
                case .held(let held):
                    ready[ObjectIdentifier(policy)] = held
                    isWaiting = mustWait(for: held, place, channel) || isWaiting
                }
            }
        }
        if !needed.isEmpty { ask(needed, holder(of: channel), place) }
        return isWaiting || !needed.isEmpty ? .waiting : .ready(ready)
    }

    private func holder(of channel: Channel) -> Holder {
        if let known = channel.delivery.holder { return known }
        let claims = channel.claims
        let holder = holders.take(claims) { number in
            PolicySubject(role: claims.role.text, claims: claims.json.text, identity: number)
        }
        channel.delivery.holder = holder
        return holder
    }

    private enum Held {
        /// The catalog has changed since the policy was read from it.
        case outdated
        /// The policy cannot be evaluated without PostgreSQL's answers about these terms.
        case needs([AskedTerm])
        case held(ActivePolicy)
    }

    private func held(_ policy: PolicyBinding, _ holder: Holder) -> Held {
        assert(holders.holders[holder.number] === holder, "a holder belongs to this follower")
        if let known = holder.policies[ObjectIdentifier(policy)] {
            if known.sets.allSatisfy({ stands($0) }) { return .held(known) }
            letGo(of: known, of: holder)
        }
        let outcome = policy.rowPolicy.residual(
            claims: holder.key.claims, role: holder.key.role, answers: holder.answers)
        switch outcome {
        case .needs(let terms): return .needs(terms)
        case .residual(let residual): return make(policy, residual, holder).map { .held($0) } ?? .outdated
        }
    }

    private func make(_ policy: PolicyBinding, _ residual: Residual, _ holder: Holder) -> ActivePolicy? {
        // A policy refers to columns by their indices in its own catalog version.
        guard let snapshot = project.catalog.snapshot, snapshot.policies.version == policy.version,
            let table = snapshot.table(policy.table),
            policy.row.columns.map(\.name) == table.columns.map(\.name)
        else { return nil }
        let tables = residual.memberships.map { snapshot.followed($0.membership.table) }
        guard tables.allSatisfy({ $0 != nil }) else { return nil }
        let sets = zip(residual.memberships, tables).compactMap { membership, table in
            table.map {
                follower.pipeline.memberships.take(
                    membership, holder.subject, $0, followedSince: snapshot.followable[$0.oid] ?? .zero,
                    unknownPast: snapshot.unknownPasts.of($0.oid))
            }
        }
        let held = follower.pipeline.router.hold(policy, residual, of: table, holder, sets)
        assert(holder.policies[ObjectIdentifier(policy)] == nil, "a policy is let go before another replaces it")
        holder.policies[ObjectIdentifier(policy)] = held
        return held
    }

    /// True if the membership set is still valid for its table in the current catalog.
    private func stands(_ set: MembershipSet) -> Bool {
        guard let snapshot = project.catalog.snapshot, let since = snapshot.followable[set.table.oid],
            let table = snapshot.followed(set.table.oid)
        else { return false }
        // The log lacks changes that were committed while the table was outside the publication.
        return set.followedSince == since.rawValue && set.stands(on: table)
    }

    /// Returns true if the channel must wait until a membership set of the policy is filled.
    private func mustWait(for held: ActivePolicy, _ place: UInt32, _ channel: Channel) -> Bool {
        if channel.position.isResumed { for set in held.sets where set.isOfLaterOnly { reopen(set, for: place) } }
        for set in held.sets where !set.isSettled {
            set.await(by: place)
            follower.pipeline.memberships.want(set)
        }
        guard held.isSettled else { return true }
        if held.predicate == nil { refresh(held) }
        return false
    }

    /// Makes a membership set wait again, because it is valid only for later changes than those that a channel now
    /// needs.
    private func reopen(_ set: MembershipSet, for place: UInt32) {
        follower.pipeline.memberships.reopen(set, for: place, at: loop.now)
        for held in set.usersInOrder {
            // Clients hear of what comes and goes from the earlier transaction on, not of the difference to it.
            held.shown = nil
            if !held.isSettled { hold(back: held, set) }
        }
        lookForWhatIsAheadLater()
    }

    private func ask(_ terms: Set<AskedTerm>, _ holder: Holder, _ place: UInt32) {
        holder.waiters.insert(place)
        guard holder.ticket == 0 else { return }
        let (ticket, number) = (home.nextTicket(), holder.number)
        holder.ticket = ticket
        project.policyEvaluator.evaluate(
            terms.sorted { $0.sql < $1.sql }, as: holder.subject, checkedBy: project.catalog
        ) { [mailbox = follower.mailbox, follower = follower.number] answers in
            mailbox.post(.evaluated(follower: follower, holder: number, ticket: ticket, answers))
        }
    }

    func evaluated(_ number: UInt32, _ ticket: UInt64, _ answers: [AskedTerm: AskedAnswer]?) {
        guard let holder = holders.holders[number], holder.ticket == ticket else { return }
        holder.ticket = 0
        let waiters = holder.waiters
        holder.waiters = []
        holder.answers.merge(answers ?? [:]) { _, newest in newest }
        for place in waiters.sorted() {
            guard let channel = follower.channel(at: place) else { continue }
            if answers == nil { follower.bindLater(channel) } else { follower.bindAgain(place, channel) }
        }
    }

    /// Forgets answers about functions of the database, which may have changed. Keeps those about built-in functions.
    func forgetAnswers() {
        for number in holders.holders.indices {
            guard let holder = holders.holders[number], !holder.answers.isEmpty else { continue }
            holder.answers = holder.answers.filter { $0.key.isBuiltIn }
        }
    }

    // MARK: Letting go

    /// Releases the holder for a channel that has ended or has other claims now.
    func release(_ holder: Holder, of channel: Channel) {
        holder.waiters.remove(channel.place)
        holder.newcomers.remove(channel.place)
        guard holders.release(holder) else { return }
        assert(holder.waiters.isEmpty, "no channel waits for a holder that is gone")
        for held in holder.heldInOrder { letGo(of: held, of: holder) }
    }

    /// Removes the policy from its holder and marks it as retired. Bindings under the policy use it until they are
    /// placed again.
    private func letGo(of held: ActivePolicy, of holder: Holder) {
        assert(holder.policies[ObjectIdentifier(held.binding)] === held, "a holder lets its own policies go, once")
        holder.policies[ObjectIdentifier(held.binding)] = nil
        held.isRetired = true
        dropIfUnused(held)
    }

    /// Removes the policy from the pipeline if it is retired and no binding uses it.
    func dropIfUnused(_ held: ActivePolicy) {
        guard held.isRetired, held.places.isEmpty else { return }
        follower.pipeline.letGo(of: held)
    }

    /// Removes policies of earlier catalogs that no binding uses and no channel waits for.
    func forgetUnusedPolicies() {
        for number in holders.holders.indices {
            guard let holder = holders.holders[number], holder.newcomers.isEmpty else { continue }
            for held in holder.heldInOrder where held.places.isEmpty && !held.isAwaited {
                letGo(of: held, of: holder)
            }
        }
    }

    // MARK: Memberships

    /// Asks PostgreSQL for the keys of membership sets.
    func fill(_ unfilled: [MembershipSet]) {
        guard !unfilled.isEmpty else { return }
        let asked = unfilled.compactMap(\.filling)
        assert(asked.count == unfilled.count, "who is to be filled waits for an answer")
        project.policyEvaluator.fill(
            unfilled.map { ($0.held.membership, $0.subject) }, checkedBy: project.catalog
        ) { [mailbox = follower.mailbox, number = follower.number] answers in
            mailbox.post(.filled(follower: number, zip(asked, answers).map { ($0, $1) }))
        }
    }

    func filled(_ answers: [(filling: MembershipFilling, answer: MembershipFill)]) {
        for (filling, _) in answers {
            // A new channel need not receive earlier commits, but a channel that catches up must. Such a channel may be
            // unbound yet, and begin to wait for the set only after the set was filled for others.
            guard let set = follower.pipeline.memberships.set(awaiting: filling) else { continue }
            set.owe(
                { follower.channel(at: $0).map { $0.position.since != nil || $0.position.isResumed } ?? false },
                and: follower.rebinding?.missing ?? [])
        }
        for set in follower.pipeline.memberships.fill(answers, at: loop.now) { settled(set) }
        settleFills()
        for (filling, answer) in answers {
            guard case .unavailable = answer, let set = follower.pipeline.memberships.unanswered(filling) else {
                continue
            }
            for place in set.waitersInOrder {
                if let channel = follower.channel(at: place) { follower.bindLater(channel) }
            }
        }
    }

    func unwindingIsDue() {
        isUnwindTimed = false
        settleFills()
    }

    /// Removes the effects of later transactions from the membership sets that PostgreSQL filled, once the log has
    /// these transactions.
    func settleFills() {
        for set in follower.pipeline.settleFills(loop.now) { settled(set) }
        lookForWhatIsAheadLater()
    }

    private func lookForWhatIsAheadLater() {
        guard follower.pipeline.memberships.isUnwinding, !isUnwindTimed else { return }
        isUnwindTimed = true
        loop.after(
            nanoseconds: Limits.membershipUnwindInterval.wholeNanoseconds,
            token: TimerToken.unwind(follower.place).rawValue)
    }

    private func settled(_ set: MembershipSet) {
        let waiters = set.takeWaiters()
        for held in set.usersInOrder where held.isSettled { refresh(held) }
        set.forgetTouched()
        for place in waiters { if let channel = follower.channel(at: place) { follower.bindAgain(place, channel) } }
    }

    /// Updates the policies whose membership sets the last transaction changed, so that the next row is decided with
    /// the new members.
    func follow(_ changed: [MembershipSet]) {
        for set in changed {
            if set.isTooNew { tellOfUnknownMembers(set) }
            for held in set.usersInOrder {
                if held.isSettled { refresh(held) } else { hold(back: held, set) }
            }
        }
        for set in changed {
            if set.isLeftAndTouched { for held in set.usersInOrder { tellOfOtherRows(held) } }
            set.forgetTouched()
        }
    }

    /// Tells clients that the hub does not know who was a member at the time of the next changes.
    private func tellOfUnknownMembers(_ set: MembershipSet) {
        // A channel that catches up must receive every change.
        let bound = Set(set.usersInOrder.flatMap(\.places.keys)).union(set.waitersInOrder)
        // A channel that moved here from a catch-up may use a set that was filled before, but must receive every change
        // too.
        let owed = bound.filter { place in
            !follower.isAtEnd || set.isOwed(place) || follower.channel(at: place)?.position.isResumed == true
        }
        for place in owed.sorted() {
            if let channel = follower.channel(at: place) { home.reports.missed(channel, .undecided) }
        }
        set.owedAreTold()
    }

    /// Makes the follower stop reading until the members of the set are known again.
    private func hold(back held: ActivePolicy, _ set: MembershipSet) {
        withhold(held)
        var work = follower.rebinding ?? Rebinding(from: follower.places.upperBound)
        for place in held.places.keys.sorted() {
            work.await(place)
            set.await(by: place)
        }
        follower.rebinding = work
    }

    /// Makes the policy hide all rows from its holder until the members are known again. If the follower stops waiting
    /// before that, the former members must not be used.
    private func withhold(_ held: ActivePolicy) {
        guard held.predicate != nil else { return }
        held.predicate = nil
        follower.pipeline.router.replace(.never, of: held)
        for place in held.places.keys.sorted() {
            if let channel = follower.channel(at: place) { follower.judgeAnew(by: held, channel) }
        }
    }

    private func refresh(_ held: ActivePolicy) {
        let isDemoted = project.isDemoted(held.binding)
        let predicate = held.makePredicate(.ofPolicies(project.catalog.snapshot), isDemoted: isDemoted)
        // While memberships are not known for the current transaction, the holder is shown nothing new.
        if held.sets.allSatisfy(\.isCurrent) {
            if held.shown.map({ $0 != predicate }) ?? held.isTouched { tellOfOtherRows(held) }
            held.shown = predicate
        }
        guard predicate != held.predicate else { return }
        held.predicate = predicate
        follower.pipeline.router.replace(predicate, of: held)
        for place in held.places.keys.sorted() {
            if let channel = follower.channel(at: place) { follower.judgeAnew(by: held, channel) }
        }
    }

    /// Records that the channels under a policy may see other rows than before, although no row changed.
    private func tellOfOtherRows(_ held: ActivePolicy) {
        let frontier = follower.pipeline.frontier
        // Between two entries, the transaction that came last is the cause.
        let offset = follower.pipeline.isBetweenEntries ? (frontier > 0 ? frontier - 1 : nil) : frontier
        for place in held.places.keys.sorted() {
            guard let channel = follower.channel(at: place) else { continue }
            home.sets.note(held.touchedRows, of: held.binding.table, channel, at: offset)
        }
    }

    // MARK: Contradictions

    func demote(_ contradicted: [PolicyBinding]) {
        for policy in contradicted {
            home.metrics.shadowContradictions.add()
            Log.shared.error(
                "PostgreSQL contradicts the hub's decision by a policy: PostgreSQL alone decides this policy from now on",
                [.relation(policy.row.relation), .policy(policy.parts.map(\.name).joined(separator: ", "))])
            project.demote(policy)
        }
    }

    func demotePolicies() {
        for number in holders.holders.indices {
            guard let holder = holders.holders[number] else { continue }
            for held in holder.heldInOrder where project.isDemoted(held.binding) { refresh(held) }
        }
    }
}
