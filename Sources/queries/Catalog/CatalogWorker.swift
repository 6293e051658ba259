import Asking
import Diagnostics
import Policy
import Postgres
import Protocol
import Replication
import System

/// Thread of the catalog: connects, reads the catalog, polls for changes, and answers requests.
final class CatalogWorker: ConnectedWorker {
    let inbox: Inbox<PlainLine<CatalogJob>>
    var link: Link<CatalogReader>
    let troubles: OutageReporter
    private let settings: CatalogService.Settings
    private let known: KnownCatalog
    private var view: CatalogView?
    private var fingerprint = ""
    private var backlog = CatalogBacklog()
    /// Monotonic time in nanoseconds at which the thread may resolve the next batch of bindings. Pauses after expensive
    /// batches limit them to about a quarter of a processor.
    private var nextResolve: UInt64 = 0
    /// Monotonic time in nanoseconds of the next poll.
    private var nextLook: UInt64 = 0
    /// Monotonic time in nanoseconds at which the catalog is read again after a change; nil if nothing is left to
    /// settle.
    private var settleAt: UInt64?
    /// Coverage of the replication stream. It is kept when the thread's connection is replaced, because the stream has
    /// a connection of its own.
    private let coverage: CoverageWatch
    private let definitions: DefinitionBook
    private let recorder: CatalogRecorder

    init(
        _ settings: CatalogService.Settings, _ known: KnownCatalog, _ adoptions: CatalogAdoptions,
        _ inbox: Inbox<PlainLine<CatalogJob>>
    ) {
        self.settings = settings
        self.known = known
        self.inbox = inbox
        troubles = OutageReporter(
            "cannot read the catalog: clients cannot subscribe to tables; trying again",
            again: "still cannot read the catalog; trying again", settings.reachability)
        link = Link(.backingOff(Backoff(settings.reachability)), connected: settings.metrics.catalogConnected)
        coverage = CoverageWatch(settings.coverage)
        definitions = DefinitionBook(settings.definitions)
        recorder = CatalogRecorder(settings.recording, adoptions, publication: settings.publication)
    }

    let connectsUnasked = true

    static var sessionSettings: [String] {
        // PostgreSQL takes longer to plan these frequent queries than to answer them.
        OwnSession.settings(statementTimeout: Limits.catalogQueryTimeout.wholeMilliseconds)
            + ["plan_cache_mode=force_generic_plan"]
    }

    func connect() throws(PostgresError) -> CatalogReader? {
        let connection = try Connection(
            settings.target, applicationName: "tidewire bindings",
            timeoutSeconds: Limits.connectTimeout.wholeSeconds,
            // With the settings kept, PostgreSQL still reports the settings that a client's session would have.
            settings: CatalogWorker.sessionSettings, keepsSettings: true, interrupt: inbox.interrupt)
        var none: Set<String> = []
        _ = try connection.pipeline(
            [ValueSettings.ownStatement], prepared: &none,
            timeoutMilliseconds: Limits.answerTimeout.wholeMilliseconds, interrupt: inbox.interrupt)[0].get()
        let reader = CatalogReader(
            asked: AskedServer(connection, interrupt: inbox.interrupt), publication: settings.publication,
            compiling: settings.compiling, bench: TrialBench(), coverage: coverage,
            definitions: definitions, slot: settings.slot, metrics: settings.metrics)
        // A new connection may lead to another server, so the thread reads everything again.
        try rebuild(reader, try reader.fingerprint(view?.snapshot))
        answered()
        Log.shared.info(
            "read the catalog: clients can subscribe to tables",
            [.publication(settings.publication), .count(view?.snapshot.tables.count ?? 0)])
        return reader
    }

    func work(_ jobs: [CatalogJob]) {
        backlog.take(jobs)
        if known.takePollRequest() { nextLook = 0 }
        guard let reader = session() else { return backlog.giveUp() }
        do throws(PostgresError) {
            try lookIfDue(reader)
            try answerRefreshes(reader)
            try answerSomeResolves(reader)
            if let view { try recorder.work(reader, view, fingerprint, isBusy: !backlog.isEmpty) }
        } catch {
            lost(error)
        }
    }

    func couldNotAsk(_ error: PostgresError) {
        settings.metrics.catalogTroubles.add()
        backlog.giveUp()
    }

    func end() {
        link.drop()
        backlog.giveUp()
    }

    // MARK: Polling for changes

    var nextWake: UInt64 {
        // The thread answers one batch of bindings at a time, so that a caller with many requests does not delay
        // polling.
        var next = min(nextLook, recorder.due, settleAt ?? .max, backlog.resolves.isEmpty ? .max : nextResolve)
        if !backlog.refreshes.isEmpty {
            next = min(next, Clock.monotonicNanoseconds() + Limits.visibilityInterval.wholeNanoseconds)
        }
        return next
    }

    private func lookIfDue(_ reader: CatalogReader) throws(PostgresError) {
        let now = Clock.monotonicNanoseconds()
        if let settleAt, now >= settleAt {
            try rebuild(reader, try reader.fingerprint(view?.snapshot), isSettling: true)
        } else if now >= nextLook {
            try look(reader)
        }
    }

    /// Polls the catalog and reads it again if it has changed. Returns true if there is a new version.
    @discardableResult
    private func look(_ reader: CatalogReader) throws(PostgresError) -> Bool {
        let began = Clock.monotonicNanoseconds()
        let fingerprint = try reader.fingerprint(view?.snapshot)
        known.learn(unannounced: fingerprint.unannounced)
        guard fingerprint.text == self.fingerprint else { return try rebuild(reader, fingerprint) }
        verified(began, fingerprint)
        return false
    }

    private func verified(_ began: UInt64, _ fingerprint: CatalogReader.Fingerprint) {
        let now = Clock.monotonicNanoseconds()
        assert(began <= now, "what holds was asked before it was answered")
        let interval = known.isWatched ? settings.pollInterval : settings.idlePollInterval
        // If polling the catalog is slow, the thread polls less often. A slow reading of the whole catalog does not
        // delay the next poll, because the next change may revoke a right.
        let wait = max(interval.wholeNanoseconds, fingerprint.took * UInt64(Limits.catalogPollShare), now - began)
        nextLook = now + min(wait, Limits.catalogIdlePollInterval.wholeNanoseconds)
        known.verified(
            until: nextLook + 3 * settings.pollInterval.wholeNanoseconds, seeing: fingerprint.visible)
    }

    /// Reads the whole catalog again. Returns true if that makes a new version; keeps the version if nothing has
    /// changed.
    @discardableResult
    private func rebuild(
        _ reader: CatalogReader, _ fingerprint: CatalogReader.Fingerprint, isSettling: Bool = false
    ) throws(PostgresError) -> Bool {
        let began = Clock.monotonicNanoseconds()
        let (new, fingerprint) = try read(reader, fingerprint)
        // Even if the catalog reads as before, a definition may have been changed and changed back.
        if self.fingerprint != fingerprint.text { settings.target.definitions.advance() }
        self.fingerprint = fingerprint.text
        known.learn(unannounced: fingerprint.unannounced)
        let isChanged = new.differs(from: view)
        if isChanged { try publish(new, reader) }
        warnAboutUnreadableTables(reader)
        if settings.tendsPublication { try reader.tendInternalPublication(new.snapshot) }
        let now = Clock.monotonicNanoseconds()
        let isSettled =
            isSettling && !isChanged && !new.snapshot.policies.isUnfinished
            && !reader.coverage.isWaiting && !reader.definitions.isWaiting
        settleAt = isSettled ? nil : now + settlingDelay(new.snapshot, took: now - began)
        verified(began, fingerprint)
        settings.metrics.catalogReads.add()
        settings.metrics.catalogReadSeconds.record(.nanoseconds(now - began))
        return isChanged
    }

    /// Returns the delay in nanoseconds before the next reading. It grows with the duration of a reading while a table
    /// is locked, because a lock can last long.
    private func settlingDelay(_ snapshot: CatalogSnapshot, took: UInt64) -> UInt64 {
        let shortest = Limits.catalogSettlingDelay.wholeNanoseconds
        guard snapshot.policies.isUnfinished else { return shortest }
        let share = took * UInt64(Limits.catalogPollShare)
        return max(shortest, min(share, Limits.maximumCatalogSettlingDelay.wholeNanoseconds))
    }

    /// Reads the catalog until the fingerprint is the same before and after the reading, up to a limit. Returns the
    /// view with the fingerprint from before it. If they do not match, the next poll reads again.
    private func read(
        _ reader: CatalogReader, _ fingerprint: CatalogReader.Fingerprint
    ) throws(PostgresError) -> (CatalogView, CatalogReader.Fingerprint) {
        var fingerprint = fingerprint
        reader.bench.begin(fingerprint.text)
        var new = try reader.view(after: view)
        for _ in 1..<Limits.maximumCatalogReads {
            let now = try reader.fingerprint(new.snapshot)
            if now.text == fingerprint.text { break }
            fingerprint = now
            reader.bench.begin(fingerprint.text)
            new = try reader.view(after: view)
        }
        return (new, fingerprint)
    }

    private func publish(_ new: CatalogView, _ reader: CatalogReader) throws(PostgresError) {
        assert(view.map { $0.snapshot.version < new.snapshot.version } ?? true, "versions only grow")
        let remembered = known.rememberedRequests
        if new.judgesOtherwise(than: view) { recorder.publishing(new.snapshot.version) }
        view = new
        known.publish(new)
        // Listeners must learn of the new snapshot even if the rest fails, because the old rights are no longer valid.
        defer { known.tell(new.snapshot) }
        settings.metrics.catalogVersion.set(new.snapshot.version)
        Log.shared.debug(
            "the catalog changed",
            [.catalogVersion(new.snapshot.version), .count(new.snapshot.tables.count)])
        // Cached outcomes are computed again before listeners ask for them. If there are too many, listeners would have
        // to wait, so they ask for each themselves.
        if remembered.count <= Limits.bindingBatch { remember(try attempt(remembered, reader)) }
    }

    private func remember(_ outcomes: [BindingRequest: BindingOutcome]) {
        let version = view?.snapshot.version ?? 0
        for (request, outcome) in outcomes where outcome.isFullyGranted && request.isSmall {
            known.remember(outcome, of: request, version: version)
        }
    }

    // MARK: Answering refreshes

    private func answerRefreshes(_ reader: CatalogReader) throws(PostgresError) {
        guard !backlog.refreshes.isEmpty else { return }
        let visible = backlog.refreshes.contains { $0.xid != nil } ? try reader.visibleTransactions() : nil
        let now = Clock.monotonicNanoseconds()
        let isReady = { (job: CatalogJob.RefreshJob) in job.xid.map { visible?.contains($0) ?? false } ?? true }
        if backlog.refreshes.contains(where: isReady) {
            try look(reader)
            // A GRANT takes effect slightly later than its transaction becomes visible, and no row waits for it, so the
            // thread polls once more.
            nextLook = min(nextLook, Clock.monotonicNanoseconds() + Limits.catalogSettlingDelay.wholeNanoseconds)
        }
        for job in backlog.takeRefreshes(where: isReady) { job.reply.give(view?.snapshot) }
        for job in backlog.takeRefreshes(where: { now >= $0.deadline }) { job.reply.giveUp() }
    }

    // MARK: Resolving bindings

    private func answerSomeResolves(_ reader: CatalogReader) throws(PostgresError) {
        if backlog.resolves.isEmpty || Clock.monotonicNanoseconds() < nextResolve { return }
        let used = Clock.threadNanoseconds()
        defer { rest(after: Clock.threadNanoseconds() - used) }
        var count = 0
        var batch: ArraySlice<CatalogJob.ResolveJob> = []
        for job in backlog.resolves {
            if !batch.isEmpty, count + job.requests.count > Limits.bindingBatch { break }
            count += job.requests.count
            batch.append(job)
        }
        let requests = Array(Set(batch.flatMap(\.requests)))
        var outcomes = try attempt(requests, reader)
        // Before a refusal the thread polls again, because the table or the right may just have been created.
        if !outcomes.values.allSatisfy(\.isFullyGranted), try look(reader) {
            outcomes = try attempt(requests, reader)
        }
        try explain(&outcomes, reader)
        assert(batch.count <= backlog.resolves.count, "who is answered has asked, in that order")
        backlog.removeResolves(batch.count)
        remember(outcomes)
        settings.metrics.bindingsResolved.add(count)
        let version = view?.snapshot.version ?? 0
        for job in batch {
            let found = job.requests.map { outcomes[$0] ?? .unavailable }
            assert(found.count == job.requests.count, "each request has its outcome")
            job.reply.give(CatalogJob.Resolution(outcomes: found, version: version))
        }
    }

    private func rest(after used: UInt64) {
        guard used >= Limits.bindingBatchAtOnce.wholeNanoseconds else { return nextResolve = 0 }
        nextResolve =
            Clock.monotonicNanoseconds()
            + min(used * UInt64(Limits.bindingBatchRests), Limits.bindingBatchRest.wholeNanoseconds)
    }

    /// Adds the cause to each refusal that found no published table. The cause names only what the role may know.
    private func explain(
        _ outcomes: inout [BindingRequest: BindingOutcome], _ reader: CatalogReader
    ) throws(PostgresError) {
        guard let snapshot = view?.snapshot else { return }
        let unfound = outcomes.keys.filter {
            $0.namesOneTable && snapshot.tables(schema: $0.schema, table: $0.table).isEmpty
        }
        if unfound.isEmpty { return }
        let kinds = try reader.kinds(of: unfound)
        for request in unfound {
            guard case .failed(let message)? = outcomes[request], message.code == .noSuchTable else { continue }
            let cause = BindingMessages.cause(of: request, kinds[request], snapshot.publication)
            outcomes[request] = .failed(ClientText(cause.code, message.text + cause.text))
        }
    }

    private func attempt(
        _ requests: [BindingRequest], _ reader: CatalogReader
    ) throws(PostgresError) -> [BindingRequest: BindingOutcome] {
        try learnAccess(requests, reader)
        guard let view else { return [:] }
        let resolver = BindingResolver(view: view)
        var outcomes: [BindingRequest: BindingOutcome] = [:]
        var drafts: [BindingRequest: [BindingDraft]] = [:]
        for request in requests {
            switch resolver.step(request) {
            case .final(let outcome), .outcome(let outcome): outcomes[request] = outcome
            case .drafts(let found): drafts[request] = found
            case .needsAccess(_, let filter):
                // The rights were queried just now. If PostgreSQL no longer knows the table, the next poll notices
                // that.
                let exists = view.roles.existing.contains(request.role)
                outcomes[request] = exists ? .unavailable : .failed(BindingMessages.unknownRole(request, filter))
            }
        }
        outcomes.merge(try reader.outcomes(of: drafts)) { _, bound in bound }
        return outcomes
    }

    /// Queries the rights that the requests need and the hub does not know yet.
    private func learnAccess(_ requests: [BindingRequest], _ reader: CatalogReader) throws(PostgresError) {
        guard var view else { return }
        var wanted = neededAccess(requests, view)
        if wanted.isEmpty { return }
        if view.roles.access.count + wanted.values.reduce(0, { $0 + $1.count }) > Limits.maximumCachedAccess {
            view.roles = RoleBook()
            wanted = neededAccess(requests, view)
        }
        view.roles.add(try reader.roles(wanted, of: view.snapshot))
        view.combinePolicies(after: view)
        assert(self.view?.snapshot === view.snapshot, "rights are learned for the snapshot that is known")
        self.view = view
        known.learn(view)
        recorder.learned()
        warnAboutUnreadableTables(reader)
    }

    /// Logs a warning for each table that the hub may not read for memberships, with the SQL that permits it.
    private func warnAboutUnreadableTables(_ reader: CatalogReader) {
        for reading in view?.ownReadings() ?? [] {
            guard let hint = reading.hint, reader.bench.isNews(hint) else { continue }
            Log.shared.warning(
                "the hub may not read a table that a policy's function reads: PostgreSQL decides every row, which is slower",
                [.relation(reading.name), .user(reading.login), .hint("as the table's owner: \(hint)")])
        }
    }

    private func neededAccess(_ requests: [BindingRequest], _ view: CatalogView) -> [String: Set<UInt32>] {
        let resolver = BindingResolver(view: view)
        var needed: [String: Set<UInt32>] = [:]
        for request in requests {
            guard case .needsAccess(let keys, _) = resolver.step(request) else { continue }
            for key in keys { needed[key.role, default: []].insert(key.table) }
        }
        return needed
    }
}
