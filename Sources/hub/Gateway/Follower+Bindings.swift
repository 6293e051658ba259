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
import Protocol
import System
import WebSocket

/// What channels want of the tables: asked of the catalog, placed in the predicate index, and looked at again whenever
/// the catalog moves.
extension Follower {
    // MARK: Binding

    /// True when the channel's bindings are in place, or have failed for good; false when the catalog has to be asked.
    func bind(_ place: UInt32, _ channel: Channel) -> Bool {
        // Answers to what was asked before are of no use: they may be about another role.
        channel.ticket = 0
        if channel.isResting {
            // It is bound when it has rested.
            if channel.session.rest.secondsLeft(loop.now) != nil { return true }
            channel.isResting = false
        }
        let requests = channel.requests()
        guard !requests.isEmpty else { return true }
        var outcomes: [BindingOutcome] = []
        // What takes long is made ready on the catalog's thread.
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
        // Until the log is open, nothing is promised.
        guard isKnown, pipeline.isOpen else { return bindLater(channel) }
        if self.place(outcomes, place, channel) { tellThatBound(channel) }
    }

    /// True when the bindings are in place; false when what policies mean for the holder has to be found out first.
    private func place(_ outcomes: [BindingOutcome], _ place: UInt32, _ channel: Channel) -> Bool {
        guard case .ready(let policies) = hold(outcomes, place, channel) else { return false }
        apply(outcomes, policies, to: channel)
        home.heldTables.hasNewListeners = true
        // Who was a member at what comes next is not known, which the others were told.
        if !isAtEnd, policies.values.contains(where: { $0.sets.contains { $0.measure == .tooNew } }) {
            home.missed(channel, .undecided)
        }
        home.tellWhatWasUnpublished(channel)
        rebinding?.finished(place)
        return true
    }

    /// The client is to know what its bindings came to: in the join's reply, or after it.
    func tellThatBound(_ channel: Channel) {
        if channel.isResting { return }
        defer {
            // What came since it was told so last is missing, too.
            if let reason = channel.missesUntilBound {
                channel.missesUntilBound = nil
                home.missed(channel, reason)
                home.sayCaughtUp(channel)
            }
        }
        home.join(.bound, channel)
    }

    /// The database is away: asked again in a while, for as long as the channel lives. Meanwhile the join is answered.
    func bindLater(_ channel: Channel, in time: Duration = Limits.bindAgainInterval) {
        if let timer = channel.bindTimer { loop.cancel(timer) }
        channel.bindTimer = loop.after(
            nanoseconds: time.wholeNanoseconds,
            token: home.token(channel) { .bind(channel: $0, generation: $1) })
    }

    /// The channel is told that it has joined, and its bindings are not in place: the log waits for them, so that nothing
    /// that is committed from here on is missed.
    func promise(_ channel: Channel) {
        guard !channel.requests().isEmpty else { return }
        _ = listener(of: channel)
        waitForBindings(of: channel)
    }

    /// At the log's end nobody else waits for what takes long: who asked for that is told, when it is there, that changes may
    /// be missing.
    private func waitForBindings(of channel: Channel) {
        if channel.isHeavy, isAtEnd {
            channel.missesUntilBound = .lateBindings
        } else {
            holdUpChanges(for: channel.place)
        }
    }

    /// It hears no changes for a while.
    func rest(_ channel: Channel, for time: Duration) {
        clearBindings(of: channel)
        channel.isResting = true
        // What comes meanwhile is missing, too.
        channel.missesUntilBound = .filtersRested
        rebinding?.finished(channel.place)
        bindLater(channel, in: time)
    }

    /// What it has is no longer sure to hold.
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

    /// Changes wait for bindings that cannot be placed: not for ever. Where the others could be served, those are told
    /// who hold them up; where nobody can be, all are sent away.
    func giveUpOnBindings() {
        guard project.catalog.isCurrent else { return sendAway() }
        guard let missing = rebinding?.giveUp() else { return }
        for place in missing {
            guard let channel = channel(at: place), channel.join.isAnswered else { continue }
            // By what it was bound before nobody knows whether it may see what follows.
            clearBindings(of: channel)
            channel.missesUntilBound = .lateBindings
            home.missed(channel, .lateBindings)
        }
    }

    /// It is time to ask for its bindings again, if nobody does already.
    func bindAgain(_ place: UInt32, _ channel: Channel) {
        guard channel.ticket == 0, bind(place, channel) else { return }
        tellThatBound(channel)
    }

    /// Another role, or other claims where policies count: nothing of what the old ones might see goes out any more. Where
    /// the new one's rights are not known yet, the log waits for them, so that nothing is missed either.
    func resubscribe(_ place: UInt32, _ channel: Channel) {
        // What the claims have in common with the former ones need not be found out again.
        let former = channel.holder
        channel.holder = nil
        defer { if let former { release(former, of: channel) } }
        for index in channel.bindings.indices { channel.bindings[index].said = .nothing }
        if bind(place, channel) { return tellThatBound(channel) }
        clearBindings(of: channel)
        waitForBindings(of: channel)
    }

    // MARK: Placing

    private func apply(
        _ outcomes: [BindingOutcome], _ policies: [ObjectIdentifier: ActivePolicy], to channel: Channel
    ) {
        for (request, outcome) in zip(channel.requests(), outcomes) {
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
        policy?.add(channel.place)
        project.catalog.addBindings(1)
        metrics.subscriptions.add(1)
        return pipeline.place(
            PlacementRequest(
                binding, policy, of: listener(of: channel), at: index, wantsMoves: channel.bindings[index].wantsMoves,
                as: channel.claims.role.text, account: channel.session.connection.seat))
    }

    /// The policy is another for the holder.
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
            dropIfUnused(policy)
        }
        project.catalog.addBindings(-1)
        metrics.subscriptions.add(-1)
    }

    private func listener(of channel: Channel) -> UInt32 {
        if let known = channel.listener { return known }
        let listener = pipeline.add(
            Listener(
                channel: channel.place, form: channel.session.envelopeForm, topic: channel.topic,
                ids: channel.bindings.map(\.id)),
            Recipient(
                channel.session.connection, isLegacy: channel.isLegacy,
                wantsCompression: channel.session.wantsCompression, wantsMoves: channel.wantsMoves,
                since: max(since(channel), channel.floor), manner: channel.manner, toldAt: channel.toldAt,
                seat: home.seat(of: channel)),
            channel.session.feed?.share)
        channel.toldAt = nil
        channel.listener = listener
        if let seen = channel.seen { pipeline.leaveOut(seen, for: listener) }
        return listener
    }

    /// What is before this offset is not for the channel.
    private func since(_ channel: Channel) -> UInt64 {
        let since = channel.since ?? project.delivery.log.end()?.state.position.offset ?? 0
        channel.since = since
        return since
    }

    func unbind(_ channel: Channel) {
        channel.ticket = 0
        rebinding?.finished(channel.place)
        for index in channel.bindings.indices {
            for placed in channel.bindings[index].tables { remove(placed, channel) }
            channel.bindings[index].tables = []
        }
        if let listener = channel.listener {
            if let share = pipeline.share(listener) { channel.session.feed?.share = share }
            pipeline.forget(listener)
        }
        channel.listener = nil
        if let holder = channel.holder { release(holder, of: channel) }
        channel.holder = nil
        passengers.remove(channel.place)
    }

    /// Channels of others may be placed here: nothing that is placed is looked at again.
    var takesOver: Bool { pipeline.isOpen && project.catalog.isCurrent && rebinding == nil }

    /// What its bindings will need here is found out while another follower has it. True when they can be placed at once.
    func prepare(_ channel: Channel) -> Bool {
        let outcomes = channel.requests().map { project.catalog.resolved($0.request) }
        // What is not known will be asked for.
        guard outcomes.allSatisfy({ $0 != nil }) else { return true }
        let former = channel.holder
        channel.holder = channel.nextHolder
        defer {
            channel.nextHolder = channel.holder
            channel.holder = former
        }
        if case .waiting = hold(outcomes.compactMap(\.self), channel.place, channel) { return false }
        return true
    }

    // MARK: The catalog moves

    /// Tables that are others now match nothing until their bindings have been looked at again; the log is not read on
    /// before that, so nothing is missed.
    func take(_ snapshot: CatalogSnapshot) {
        pipeline.take(snapshot)
        forgetAnswers()
        rebinding = Rebinding()
    }

    /// Goes through the channels, some in each turn.
    func continueRebinding() -> Rebinding.Progress {
        // An answer was newer than what the others were bound by: they are looked at before anything is read.
        if pipeline.takeReplacement() { rebinding = Rebinding() }
        guard var work = rebinding.take() else { return .done }
        var left = Limits.rebindingsPerTurn
        while left > 0, work.next < places.upperBound {
            defer { work.next += 1 }
            guard let channel = channel(at: work.next), channel.join.isBinding else { continue }
            left -= 1
            if bind(work.next, channel) {
                // It may have been awaited before its turn came.
                work.finished(channel.place)
                tellThatBound(channel)
            } else if channel.isHeavy, isAtEnd {
                clearBindings(of: channel)
                channel.missesUntilBound = .lateBindings
            } else {
                work.await(channel.place)
            }
        }
        if pipeline.takeReplacement() { work = Rebinding() }
        let progress = work.progress(of: places.upperBound)
        rebinding = progress == .done ? nil : work
        if progress == .done { forgetUnusedPolicies() }
        return progress
    }

    // MARK: Losses

    /// What could not be delivered is told to those who miss it.
    func tell(of losses: DeliveryLosses) {
        for listener in losses.lacking { if let channel = channel(ofListener: listener) { home.lacksValues(channel) } }
        for listener in losses.overfull {
            if let channel = channel(ofListener: listener) { home.goBack(channel) }
        }
        for listener in losses.unanswered {
            if let channel = channel(ofListener: listener) { home.missed(channel, .undecided) }
        }
        for account in losses.stopped {
            guard Int(account) < clients.sessions.count, let session = clients.sessions[Int(account)],
                session.project === home
            else { continue }
            home.rest(session)
        }
        // Others who asked for the same.
        for listener in losses.skipped {
            if let channel = channel(ofListener: listener), !channel.isResting { home.missed(channel, .undecided) }
        }
    }

    /// Columns are missing from rows: said once to each channel that follows them.
    func tellOfUncomputed(_ missed: [UInt32: Set<String>]) {
        if missed.isEmpty { return }
        for place in places {
            guard let channel = channel(at: place), channel.isOpen else { continue }
            for binding in channel.bindings.flatMap({ $0.tables }).map(\.binding) {
                for column in (missed[binding.table.oid] ?? []).sorted() { tellOfUncomputed(column, binding, channel) }
            }
        }
    }

    private func tellOfUncomputed(_ column: String, _ binding: TableBinding, _ channel: Channel) {
        guard let slot = binding.table.slot(named: column) else { return }
        let isTold = binding.delivered.contains(slot)
        guard isTold || binding.isJudged(by: slot) else { return }
        let message = BindingMessages.couldNotCompute(isTold ? column : nil, of: binding.table)
        if channel.toldOfUncomputed.insert(message).inserted { home.tell(channel, .ok, message) }
    }

    /// There is no event for it: whoever hears of deletes is told in words.
    func tellOfTruncations(_ truncated: [UInt32: UInt64]) {
        if !truncated.isEmpty {
            for place in places { if let channel = channel(at: place) { noteTruncations(truncated, channel) } }
        }
        for place in truncationsUntold.sorted() { if let channel = channel(at: place) { tellOfTruncations(channel) } }
        truncationsUntold = truncationsUntold.filter { channel(at: $0)?.untoldTruncations.isEmpty == false }
    }

    /// What was there has been removed from the log on demand. Whoever reads so far back and might have been told of it is told
    /// that; nobody can say any more whose it was.
    func noteForgotten(_ forgotten: [UInt32: UInt64], messages: Bool) {
        if forgotten.isEmpty, !messages { return }
        for place in places {
            guard let channel = channel(at: place) else { continue }
            guard channel.isOpen else {
                if !isAtEnd { channel.missesUntilBound = .removed }
                continue
            }
            if messages, !isAtEnd { tellLater(BindingMessages.hasForgottenMessages, at: 0, channel) }
            if let listener = channel.listener, pipeline.hasMissedNothing(listener) { continue }
            for binding in channel.bindings.lazy.flatMap(\.tables).map(\.binding) where binding.mayHearOfRows {
                guard let offset = forgotten[binding.table.oid] else { continue }
                tellLater(BindingMessages.hasForgotten(binding.table), at: offset, channel)
            }
        }
    }

    private func tellLater(_ message: ClientText, at offset: UInt64, _ channel: Channel) {
        // Several bindings may be of one table, and one table may be emptied again before that is told.
        channel.untoldTruncations.removeAll { $0.text == message }
        channel.untoldTruncations.append((offset, message))
        truncationsUntold.insert(channel.place)
    }

    private func noteTruncations(_ truncated: [UInt32: UInt64], _ channel: Channel) {
        // It was emptied before what the channel began with.
        if let listener = channel.listener, pipeline.hasMissedNothing(listener) { return }
        for binding in channel.bindings.lazy.flatMap(\.tables).map(\.binding) where binding.hearsOfTruncation {
            guard let offset = truncated[binding.table.oid] else { continue }
            tellLater(BindingMessages.isTruncated(binding.table), at: offset, channel)
        }
    }

    /// Behind what waits for an answer: what is fetched again must not be followed by what was there before.
    func tellOfTruncations(_ channel: Channel) {
        guard channel.isOpen, !channel.untoldTruncations.isEmpty else { return }
        var reached = UInt64.max
        if let listener = channel.listener, pipeline.isHeld(listener) { reached = pipeline.firstHeld(listener) ?? 0 }
        for truncation in channel.untoldTruncations where truncation.at < reached {
            home.tell(channel, .ok, truncation.text)
        }
        channel.untoldTruncations.removeAll { $0.at < reached }
    }

    /// The channel is another's from here on, who is not to get what waits for the former one, and is told that it is gone.
    func dropWaiting(_ channel: Channel) {
        guard let listener = channel.listener, pipeline.dropWaiting(listener) else { return }
        home.missed(channel, .tokenChanged)
    }

    func channel(ofListener listener: UInt32) -> Channel? {
        pipeline.channel(of: listener).flatMap { channel(at: $0) }
    }

    /// Tells every channel that history has a gap or begins anew, for rows and for the database's messages to its topic.
    /// Channels that catch up were promised the time before their join, too. Where the log only begins,
    /// channels without bindings were promised nothing of the time before.
    func tellOfGap(_ reason: String) {
        for place in places {
            guard let channel = channel(at: place) else { continue }
            if isAtEnd, channel.bindings.isEmpty, reason == Pipeline.logHasBegun { continue }
            guard channel.isOpen else {
                if !isAtEnd { channel.missesUntilBound = .gap }
                continue
            }
            // What waits is from before it: nobody is told that behind what it fetches now.
            if let listener = channel.listener { _ = pipeline.dropWaiting(listener) }
            channel.untoldTruncations = []
            let text = "Changes may be missing (\(reason)): fetch again what is shown"
            if let feed = channel.session.feed {
                home.cut(feed, channel, TextCode.changesMissing.rawValue, text)
                continue
            }
            home.tell(channel, .error, ClientText(.changesMissing, text))
            // The position that it had before is of no use any more.
            home.sayCaughtUp(channel)
        }
    }
}

/// How far the channels have been looked at since the catalog moved.
struct Rebinding {
    enum Progress {
        case done
        /// More can be done at once.
        case more
        /// Answers of the catalog are missing.
        case waiting
    }

    var next: UInt32 = 0
    /// Channels that changes wait for.
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
    /// Who sees no row of it is not told when all go.
    var hearsOfTruncation: Bool { operations.contains(.delete) && mayHearOfRows }

    var mayHearOfRows: Bool {
        !isKeptSecret && policy?.rowPolicy.term != .never && (policy == nil || access == .readable)
    }
}
