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

/// Bindings of channels: resolved by the catalog, placed in the predicate index, and resolved again whenever the
/// catalog changes.
extension Follower {
    // MARK: Binding

    /// Binds the channel. Returns true if its bindings are in place or have failed for good, false if the catalog has
    /// to be asked first.
    func bind(_ place: UInt32, _ channel: Channel) -> Bool {
        assert(
            channel.delivery.follower === self && channel.place == place, "a channel is bound where it follows the log")
        assert(channel.delivery.heldBy.isEmpty, "a channel that waits for a commit is not bound")
        // Answers to earlier questions are ignored, because they may be about another role.
        channel.ticket = 0
        if channel.delivery.isResting {
            // The channel is bound when its filter pause is over.
            if channel.session.use.rest.secondsLeft(loop.now) != nil { return true }
            channel.delivery.isResting = false
        }
        let requests = channel.requests()
        guard !requests.isEmpty else { return true }
        var outcomes: [BindingOutcome] = []
        // Bindings that take long are prepared on the catalog's thread.
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
        // Nothing is promised until the log is open.
        guard isKnown, pipeline.isOpen else { return bindLater(channel) }
        if self.place(outcomes, place, channel) { tellThatBound(channel) }
    }

    /// Places resolved bindings. Returns false if the policies' meaning for the holder has to be found out first.
    private func place(_ outcomes: [BindingOutcome], _ place: UInt32, _ channel: Channel) -> Bool {
        guard case .ready(let policies) = policies.hold(outcomes, place, channel) else { return false }
        apply(outcomes, policies, to: channel)
        home.held.noteNewListeners()
        // The hub does not know who was a member at the time of the next changes. Channels bound earlier were told so.
        if !isAtEnd, policies.values.contains(where: { $0.sets.contains(where: \.isTooNew) }) {
            home.reports.missed(channel, .undecided)
        }
        home.reports.tellWhatWasUnpublished(channel)
        rebinding?.finished(place)
        return true
    }

    /// Tells the client the outcome of its bindings, in the join's reply or after it.
    func tellThatBound(_ channel: Channel) {
        if channel.delivery.isResting { return }
        defer {
            // Changes since the last such message are missing, too.
            if channel.position.owedLoss != nil {
                home.take(.owedLossDue, channel)
                home.catchUps.sayCaughtUp(channel)
            }
        }
        home.joins.take(.bound, channel)
    }

    /// Resolves the bindings again later, because the database is unavailable. This repeats for as long as the channel
    /// lives. Meanwhile the join is answered.
    func bindLater(_ channel: Channel, in time: Duration = Limits.bindAgainInterval) {
        if let timer = channel.timers.bind { loop.cancel(timer) }
        channel.timers.bind = loop.after(
            nanoseconds: time.wholeNanoseconds,
            token: home.token(channel) { .bind(channel: $0, generation: $1) })
    }

    /// Makes the log wait for the bindings of a channel whose client was told that it has joined. No change committed
    /// from here on is missed.
    func promise(_ channel: Channel) {
        guard !channel.requests().isEmpty else { return }
        _ = listener(of: channel)
        waitForBindings(of: channel)
    }

    /// Makes the log wait for the channel's bindings. At the log's end, other channels do not wait for bindings that
    /// take long. Such a channel is told, when it is bound, that changes may be missing.
    private func waitForBindings(of channel: Channel) {
        if channel.isHeavy, isAtEnd {
            channel.position.owe(.lateBindings)
        } else {
            holdUpChanges(for: channel.place)
        }
    }

    /// Pauses the channel's changes for a while.
    func rest(_ channel: Channel, for time: Duration) {
        clearBindings(of: channel)
        channel.delivery.isResting = true
        // Changes during the pause are missing, too.
        channel.position.owe(.filtersRested)
        rebinding?.finished(channel.place)
        bindLater(channel, in: time)
    }

    /// Removes the channel's placed bindings, because they may not hold any more.
    private func clearBindings(of channel: Channel) {
        for index in channel.bindings.indices {
            replace([], index, channel)
            channel.bindings[index].outcome = .nothing
        }
    }

    func holdUpChanges(for place: UInt32) {
        var work = rebinding ?? Rebinding(from: places.upperBound)
        work.await(place)
        rebinding = work
    }

    /// Ends the wait for bindings that cannot be placed. While the catalog is known, only the channels that delay the
    /// log are told. Otherwise all channels are sent away.
    func giveUpOnBindings() {
        guard project.catalog.isCurrent else { return sendAway() }
        guard let missing = rebinding?.giveUp() else { return }
        for place in missing {
            // At the log's end, a channel without an answer was promised nothing yet. A channel that catches up was.
            guard let channel = channel(at: place), channel.join.isAnswered || !isAtEnd else { continue }
            // The former binding does not show whether the channel may see the changes that follow.
            clearBindings(of: channel)
            channel.position.owe(.lateBindings)
            if channel.join.isAnswered { home.reports.missed(channel, .lateBindings) }
        }
    }

    /// Binds the channel again when its timer ends, unless a question is under way.
    func bindAgain(_ place: UInt32, _ channel: Channel) {
        guard channel.ticket == 0, bind(place, channel) else { return }
        tellThatBound(channel)
    }

    /// Binds the channel for another role, or for other claims where policies apply. Changes that only the former
    /// holder may see are not sent any more. If the new rights are not known yet, the log waits for them, so that no
    /// change is missed.
    func resubscribe(_ place: UInt32, _ channel: Channel) {
        // Answers for claims that both holders share are found once.
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
                if let refusal = refusal(of: tables, request.request) {
                    replace([], request.binding, channel)
                    note(.failed([refusal]), request.binding, channel)
                    continue
                }
                replace(
                    tables.map { ($0, $0.policy.flatMap { policies[ObjectIdentifier($0)] }) }, request.binding, channel)
                let moves =
                    channel.bindings[request.binding].wantsMoves ? tables.compactMap(warning(aboutMovesOf:)) : []
                let warnings = warnings(about: tables, policies, request.request.role)
                note(.subscribed(warnings + moves), request.binding, channel)
            case .failed(let message):
                replace([], request.binding, channel)
                note(.failed([message]), request.binding, channel)
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
                as: channel.claims.role.text, account: channel.session.connection.seat))
    }

    /// Places the bindings of a policy again, because its predicate has changed for the holder.
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
                since: channel.position.start(end: end), manner: channel.manner, toldAt: channel.position.toldAt,
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

    /// True if channels of another follower may be placed here: the log is open and no rebinding is under way.
    var takesOver: Bool { pipeline.isOpen && project.catalog.isCurrent && rebinding == nil }

    /// Prepares the policies that the channel's bindings need here, while another follower still serves it. Returns
    /// true if the bindings can be placed at once.
    func prepare(_ channel: Channel) -> Bool {
        let outcomes = channel.requests().map { project.catalog.resolved($0.request) }
        // Unknown bindings are resolved later.
        guard outcomes.allSatisfy({ $0 != nil }) else { return true }
        let former = channel.delivery.holder
        channel.delivery.holder = channel.delivery.nextHolder
        defer {
            channel.delivery.nextHolder = channel.delivery.holder
            channel.delivery.holder = former
        }
        if case .waiting = policies.hold(outcomes.compactMap(\.self), channel.place, channel) { return false }
        return true
    }

    // MARK: The catalog moves

    /// Takes a new catalog snapshot. Tables that changed match nothing until their bindings are resolved again. The log
    /// is not read before that, so no change is missed.
    func take(_ snapshot: CatalogSnapshot) {
        pipeline.take(snapshot)
        policies.forgetAnswers()
        rebinding = Rebinding()
    }

    /// Binds channels again, a limited number in each turn.
    func continueRebinding() -> Rebinding.Progress {
        // An answer came from a newer catalog than the bindings. All bindings are checked before the log is read on.
        if pipeline.takeReplacement() { rebinding = Rebinding() }
        guard var work = rebinding.take() else { return .done }
        assert(work.next <= places.upperBound, "no channel that is still to come is passed over")
        var left = Limits.rebindingsPerTurn
        while left > 0, work.next < places.upperBound {
            defer { work.next += 1 }
            guard let channel = channel(at: work.next), channel.join.isBinding else { continue }
            left -= 1
            if bind(work.next, channel) {
                // The log may have waited for this channel before its turn came.
                work.finished(channel.place)
                tellThatBound(channel)
            } else if channel.isHeavy, isAtEnd {
                clearBindings(of: channel)
                channel.position.owe(.lateBindings)
            } else {
                work.await(channel.place)
            }
        }
        // A channel that needs a membership set for earlier changes makes the log wait for all channels of that set.
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

/// Progress of binding the channels again after the catalog changed.
struct Rebinding {
    enum Progress {
        case done
        /// More channels can be bound at once.
        case more
        /// The catalog's answers are missing.
        case waiting
    }

    var next: UInt32 = 0
    /// Channels for which the log waits.
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
    /// True if truncations are reported to the binding. A binding that can see no row of the table is not told.
    var hearsOfTruncation: Bool { operations.contains(.delete) && mayHearOfRows }

    var mayHearOfRows: Bool {
        !isKeptSecret && policy?.rowPolicy.term != .never && (policy == nil || access == .readable)
    }
}
