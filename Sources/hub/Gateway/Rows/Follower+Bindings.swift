import Asking
import Auth
import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Judging
import Matching
import Net
import Policy
import Positions
import Protocol
import System
import WebSocket

/// Binding of channels: the catalog resolves their bindings, the follower places them in the predicate index, and both
/// happen again whenever the catalog changes.
extension Follower {
    // MARK: Binding

    /// Binds the channel. Returns true if its bindings are placed or have failed for good, and false if the catalog
    /// must be asked first.
    func bind(_ place: UInt32, _ channel: Channel) -> Bool {
        assert(
            channel.delivery.follower === self && channel.place == place, "a channel is bound where it follows the log")
        assert(channel.delivery.heldBy.isEmpty, "a channel that waits for a commit is not bound")
        // Answers to earlier questions are ignored, because they may belong to another role.
        channel.ticket = 0
        if channel.delivery.isResting {
            // The channel is bound when its filter pause ends.
            if channel.session.use.rest.secondsLeft(loop.now) != nil { return true }
            channel.delivery.isResting = false
        }
        let requests = channel.requests()
        guard !requests.isEmpty else { return true }
        var outcomes: [BindingOutcome] = []
        // The catalog's thread prepares bindings that take long.
        if pipeline.isOpen, project.catalog.isCurrent, !channel.isHeavy {
            for (_, request) in requests {
                guard let outcome = project.catalog.resolved(request) else { break }
                outcomes.append(outcome)
            }
        }
        if outcomes.count == requests.count { return self.place(outcomes, place, channel) }
        ask(requests.map(\.request), place, channel)
        return false
    }

    private func ask(_ requests: [BindingRequest], _ place: UInt32, _ channel: Channel) {
        let ticket = home.nextTicket()
        channel.ticket = ticket
        project.catalog.resolve(requests) { [mailbox] outcomes, _ in
            mailbox.post(.resolved(channel: place, ticket: ticket, outcomes))
        }
    }

    func resolved(_ place: UInt32, _ ticket: UInt64, _ outcomes: [BindingOutcome]) {
        guard let channel = channel(at: place), channel.ticket == ticket else { return }
        channel.ticket = 0
        let isKnown = !outcomes.contains { if case .unavailable = $0 { true } else { false } }
        // The hub sends no result before the log is open.
        guard isKnown, pipeline.isOpen else { return bindLater(channel) }
        if self.place(outcomes, place, channel) { tellThatBound(channel) }
    }

    /// Places resolved bindings. Returns false if the hub must first find out what the policies mean for the holder.
    private func place(_ outcomes: [BindingOutcome], _ place: UInt32, _ channel: Channel) -> Bool {
        guard case .ready(let policies) = policies.hold(outcomes, place, channel) else { return false }
        apply(outcomes, policies, to: channel)
        home.held.noteNewListeners()
        // The hub does not know who was a member at the time of the next changes. It has told the channels bound
        // earlier.
        if !isAtEnd, policies.values.contains(where: { $0.sets.contains(where: \.isTooNew) }) {
            home.reports.missed(channel, .undecided)
        }
        home.reports.tellWhatWasUnpublished(channel)
        rebinding?.finished(place)
        return true
    }

    /// Tells the client the result of its bindings, in the join's reply or after it.
    func tellThatBound(_ channel: Channel) {
        if channel.delivery.isResting { return }
        defer {
            // Changes after that message may be missing too.
            if channel.position.owedLoss != nil {
                home.take(.owedLossDue, channel)
                home.catchUps.sayCaughtUp(channel)
            }
        }
        home.joins.take(.bound, channel)
    }

    /// Resolves the bindings again later, because the database is unavailable. This repeats while the channel exists.
    /// The join is answered without waiting for it.
    func bindLater(_ channel: Channel, in time: Duration = Limits.bindAgainInterval) {
        if let timer = channel.timers.bind { loop.cancel(timer) }
        channel.timers.bind = loop.after(
            nanoseconds: time.wholeNanoseconds,
            token: home.token(channel) { .bind(channel: $0, generation: $1) })
    }

    /// Makes the follower wait for the bindings of a channel whose join has been answered, so that the channel misses
    /// nothing committed after the answer.
    func promise(_ channel: Channel) {
        guard !channel.requests().isEmpty else { return }
        _ = listener(of: channel)
        waitForBindings(of: channel)
    }

    /// Makes the follower wait for the channel's bindings. The live follower does not wait for bindings that take long,
    /// for the sake of other channels: the hub will tell such a channel that changes may be missing.
    private func waitForBindings(of channel: Channel) {
        if channel.isHeavy, isAtEnd {
            channel.position.owe(.lateBindings)
        } else {
            holdUpChanges(for: channel.place)
        }
    }

    /// Stops the channel's changes for a while, because its filters took too much work.
    func rest(_ channel: Channel, for time: Duration) {
        clearBindings(of: channel)
        channel.delivery.isResting = true
        // Changes during the pause will be missing.
        channel.position.owe(.filtersRested)
        rebinding?.finished(channel.place)
        bindLater(channel, in: time)
    }

    /// Removes the channel's placed bindings from the predicate index, because they may no longer be right.
    private func clearBindings(of channel: Channel) {
        for index in channel.bindings.indices {
            replace([], index, channel)
            channel.bindings[index].outcome = .nothing
        }
    }

    /// Makes the follower read no further until the bindings of the channel at the place are in the predicate index.
    func holdUpChanges(for place: UInt32) {
        var work = rebinding ?? Rebinding(from: places.upperBound)
        work.await(place)
        rebinding = work
    }

    /// Ends the wait for bindings that cannot be placed. If the catalog is available, the hub tells only the channels
    /// without bindings. Otherwise it disconnects all clients of the follower.
    func giveUpOnBindings() {
        guard project.catalog.isCurrent else { return sendAway() }
        guard let missing = rebinding?.giveUp() else { return }
        for place in missing {
            // At the log's end, a channel whose join was not answered cannot miss anything yet. A channel that catches
            // up can.
            guard let channel = channel(at: place), channel.join.isAnswered || !isAtEnd else { continue }
            // The former bindings do not show if the channel may see the next changes.
            clearBindings(of: channel)
            channel.position.owe(.lateBindings)
            if channel.join.isAnswered { home.reports.missed(channel, .lateBindings) }
        }
    }

    /// Binds the channel again when its timer ends, unless the catalog is already being asked.
    func bindAgain(_ place: UInt32, _ channel: Channel) {
        guard channel.ticket == 0, bind(place, channel) else { return }
        tellThatBound(channel)
    }

    /// Binds the channel again, because its token now has another role, or other claims and policies apply. From now
    /// on, changes that only the former holder may see are not sent. If the new rights are not known yet, the follower
    /// waits for them, so that the channel misses nothing.
    func resubscribe(_ place: UInt32, _ channel: Channel) {
        // The former holder is released last, so that answers which both holders share need not be asked for again.
        let former = channel.delivery.holder
        channel.delivery.holder = nil
        defer { if let former { policies.release(former, of: channel) } }
        for index in channel.bindings.indices { channel.bindings[index].said = .nothing }
        if bind(place, channel) { return tellThatBound(channel) }
        clearBindings(of: channel)
        waitForBindings(of: channel)
    }

    // MARK: Placing

    private func apply(
        _ outcomes: [BindingOutcome], _ policies: [ObjectIdentifier: ActivePolicy], to channel: Channel
    ) {
        let requests = channel.requests()
        assert(requests.count == outcomes.count, "each binding has its outcome")
        for (request, outcome) in zip(requests, outcomes) {
            switch outcome {
            case .tables(let tables):
                if let refusal = refusal(of: tables, policies, request.request) {
                    replace([], request.binding, channel)
                    note(.failed([refusal]), request.binding, channel)
                    continue
                }
                replace(
                    tables.map { ($0, $0.policy.flatMap { policies[ObjectIdentifier($0)] }) }, request.binding, channel)
                home.sets.compareSights(of: request.binding, channel, on: self)
                var moves: [ClientText] = []
                if channel.bindings[request.binding].wantsMoves {
                    moves = tables.flatMap(warnings(aboutMovesOf:))
                    moves += tables.compactMap { table in
                        warning(aboutSetsOf: table, table.policy.flatMap { policies[ObjectIdentifier($0)] })
                    }
                }
                let warnings = warnings(about: tables, policies, request.request.role)
                note(.subscribed(warnings + moves), request.binding, channel)
            case .failed(let message):
                replace([], request.binding, channel)
                note(.failed([message]), request.binding, channel)
                home.sets.bindingFailed(request.binding, channel)
            case .unavailable: preconditionFailure("an outcome that is none")
            }
        }
    }

    private func replace(
        _ tables: [(binding: TableBinding, policy: ActivePolicy?)], _ index: Int, _ channel: Channel
    ) {
        let old = channel.bindings[index].tables
        if old.count == tables.count, zip(old, tables).allSatisfy({ pipeline.stands($0, as: $1.binding, $1.policy) }) {
            return
        }
        for placed in old { remove(placed, channel) }
        channel.bindings[index].tables = tables.map { add($0.binding, $0.policy, index, channel) }
    }

    private func note(_ what: Channel.Said, _ index: Int, _ channel: Channel) {
        if channel.bindings[index].outcome != what {
            channel.bindings[index].outcome = what
            channel.bindings[index].said = .nothing
        }
    }

    private func add(
        _ binding: TableBinding, _ policy: ActivePolicy?, _ index: Int, _ channel: Channel
    ) -> Placement {
        assert(policy?.isRetired != true, "no binding begins under a policy that was replaced")
        assert(policy.map { $0.predicate != nil } ?? true, "a policy's memberships are known before it binds")
        policy?.add(channel.place)
        project.catalog.addBindings(1)
        metrics.subscriptions.add(1)
        return pipeline.place(
            PlacementRequest(
                binding, policy, of: listener(of: channel), at: index, wantsMoves: channel.bindings[index].wantsMoves,
                beginsWithRows: channel.bindings[index].beginsWithRows, as: channel.claims.role.text,
                account: channel.session.connection.seat))
    }

    /// Places the bindings under the policy again, because its predicate has changed.
    func judgeAnew(by policy: ActivePolicy, _ channel: Channel) {
        for index in channel.bindings.indices {
            for place in channel.bindings[index].tables.indices
            where channel.bindings[index].tables[place].policy === policy {
                pipeline.judgeAnew(&channel.bindings[index].tables[place])
            }
        }
    }

    private func remove(_ placement: Placement, _ channel: Channel) {
        pipeline.remove(placement)
        if let policy = placement.policy {
            policy.remove(channel.place)
            policies.dropIfUnused(policy)
        }
        project.catalog.addBindings(-1)
        metrics.subscriptions.add(-1)
    }

    /// Returns the channel's listener in the pipeline; adds one if there is none.
    private func listener(of channel: Channel) -> UInt32 {
        if let known = channel.delivery.listener { return known }
        let end = project.delivery.log.end()?.state.position.offset ?? 0
        let listener = pipeline.router.add(
            Listener(
                channel: channel.place, form: channel.envelopeForm, topic: channel.topic,
                ids: channel.bindings.map(\.id)),
            Recipient(
                channel.session.connection, isLegacy: channel.isLegacy,
                wantsCompression: channel.session.terms.wantsCompression, wantsMoves: channel.wantsMoves,
                since: channel.position.since ?? end, rowsUpTo: channel.position.floor, manner: channel.manner,
                toldAt: channel.position.toldAt,
                seat: home.ledger.seat(of: channel)),
            channel.feed?.share)
        channel.delivery.listener = listener
        home.take(.bound(end: end), channel)
        if let seen = channel.position.seen { pipeline.router.leaveOut(seen, for: listener) }
        return listener
    }

    func unbind(_ channel: Channel) {
        assert(channel.delivery.follower === self, "a channel is unbound where it was bound")
        channel.ticket = 0
        rebinding?.finished(channel.place)
        for index in channel.bindings.indices {
            for placed in channel.bindings[index].tables { remove(placed, channel) }
            channel.bindings[index].tables = []
        }
        if let listener = channel.delivery.listener {
            if let share = pipeline.share(listener) { channel.feed?.share = share }
            pipeline.router.forget(listener)
        }
        channel.delivery.listener = nil
        if let holder = channel.delivery.holder { policies.release(holder, of: channel) }
        channel.delivery.holder = nil
        catchUpChannels.remove(channel.place)
    }

    /// True if channels of catch-up followers can move to this one: the log is open and no rebinding is under way.
    var takesOver: Bool { pipeline.isOpen && project.catalog.isCurrent && rebinding == nil }

    /// Prepares the policies for the channel's bindings on this follower, while another one still serves the channel.
    /// Returns true if the bindings can be placed immediately.
    func prepare(_ channel: Channel) -> Bool {
        let outcomes = channel.requests().map { project.catalog.resolved($0.request) }
        // Unresolved bindings are resolved after the move.
        guard outcomes.allSatisfy({ $0 != nil }) else { return true }
        let former = channel.delivery.holder
        channel.delivery.holder = channel.delivery.nextHolder
        defer {
            channel.delivery.nextHolder = channel.delivery.holder
            // Otherwise the policies could be forgotten before the channel moves, and be prepared again without end.
            channel.delivery.nextHolder?.newcomers.insert(channel.place)
            channel.delivery.holder = former
        }
        if case .waiting = policies.hold(outcomes.compactMap(\.self), channel.place, channel) { return false }
        return true
    }

    // MARK: The catalog moves

    /// Applies a new catalog snapshot. Tables that changed match nothing until their bindings are resolved again. The
    /// follower does not read the log before that, so no change is missed.
    func take(_ snapshot: CatalogSnapshot) {
        pipeline.take(snapshot)
        policies.forgetAnswers()
        rebinding = Rebinding()
    }

    /// Binds channels again after a new catalog, a limited number in each turn. Returns how far this is done.
    func continueRebinding() -> Rebinding.Progress {
        // An answer was based on a newer catalog than the bindings, so all bindings are checked before the log is read.
        if pipeline.takeReplacement() { rebinding = Rebinding() }
        guard var work = rebinding.take() else { return .done }
        assert(work.next <= places.upperBound, "no channel that is still to come is passed over")
        var left = Limits.rebindingsPerTurn
        while left > 0, work.next < places.upperBound {
            defer { work.next += 1 }
            guard let channel = channel(at: work.next), channel.join.isBinding else { continue }
            left -= 1
            if bind(work.next, channel) {
                // The follower may have been waiting for this channel already.
                work.finished(channel.place)
                tellThatBound(channel)
            } else if channel.isHeavy, isAtEnd {
                clearBindings(of: channel)
                channel.position.owe(.lateBindings)
            } else {
                work.await(channel.place)
            }
        }
        // If a channel needs a membership set for earlier changes, all channels that use the set must be bound again.
        for place in rebinding?.missing ?? [] { work.await(place) }
        if pipeline.takeReplacement() { work = Rebinding() }
        let progress = work.progress(of: places.upperBound)
        rebinding = progress == .done ? nil : work
        if progress == .done { policies.forgetUnusedPolicies() }
        return progress
    }

    func channel(ofListener listener: UInt32) -> Channel? {
        pipeline.channel(of: listener).flatMap { channel(at: $0) }
    }
}

/// Progress of a follower in binding its channels again after the catalog changed.
struct Rebinding {
    enum Progress {
        case done
        /// More channels can be bound immediately.
        case more
        /// State in which channels still wait for answers of the catalog.
        case waiting
    }

    /// Place (index) of the next channel to bind.
    var next: UInt32 = 0
    /// Places (indices) of the channels without bindings, for which the follower waits.
    private(set) var missing: Set<UInt32> = []

    init(from first: UInt32 = 0) { next = first }

    mutating func await(_ channel: UInt32) { missing.insert(channel) }
    mutating func finished(_ channel: UInt32) { missing.remove(channel) }

    var missingCount: Int { missing.count }

    mutating func giveUp() -> [UInt32] {
        defer { missing.removeAll() }
        return missing.sorted()
    }

    func progress(of count: UInt32) -> Progress {
        if next < count { return .more }
        return missing.isEmpty ? .done : .waiting
    }
}

extension TableBinding {
    /// True if the hub tells the client about truncations of the table. False for a binding that can see no row.
    var hearsOfTruncation: Bool { operations.contains(.delete) && mayHearOfRows }

    /// True if privileges and policies may let the holder of the binding see some row of the table.
    var mayHearOfRows: Bool {
        !isKeptSecret && policy?.rowPolicy.term != .never && (policy == nil || access == .readable)
    }
}
