import Diagnostics
import EventLog
import Gateway
import Ingest
import Postgres
import Replication
import Settings
import Synchronization
import System
import WebSocket

/// Error at start: there is no project, and no operators' secret with which one could be created.
public struct NoDatabase: Error, CustomStringConvertible {
    public var description: String {
        "no database is configured: set TIDEWIRE_DATABASE_URL (or --database-url, or DB_HOST, DB_USER, DB_PASSWORD, "
            + "DB_NAME), or run 'tidewire dev' for one that is made for you"
    }
}

/// Director of all projects. It starts and stops them by the settings, the project store and operators' requests.
///
/// Any thread may send operations. Each project has a thread that carries them out, because stopping a project waits
/// for its threads and clients.
public final class ProjectDirector: Operators {
    typealias Answer = @Sendable (HTTPResponse) -> Void

    private struct Running {
        var byName: [String: RunningProject] = [:]
        /// Number of consecutive failures, for each project that could not be started.
        var failures: [String: Int] = [:]
        /// Numbers (`Project.number`) of stopped projects, which later projects get.
        var free: [UInt32] = []
        var next: UInt32 = 0

        /// Makes the number of a stopped project available to a later one.
        mutating func release(_ number: UInt32) {
            assert(number < next && !free.contains(number), "a number that was taken is freed once")
            free.append(number)
        }
    }

    let api: TenantsAPI
    /// Planner of how projects start. It has the token keys that were last read from their files.
    private let planning: Mutex<ProjectPlanner>
    private let store: ProjectStore
    private let configured: ProjectRecord?
    private let gateway: Gateway
    private let running = Mutex(Running())
    private let lanes: ProjectLanes
    private let audit: OperatorAudit
    /// Queue of operators' questions to logs; nil until all projects have been started.
    private let questions = Mutex<QuestionDesk?>(nil)
    /// Queue of operators' streams of logs; nil until all projects have been started.
    private let streams = Mutex<QuestionDesk?>(nil)
    private let values = HourOfValues()

    /// Starts all projects in parallel. If a project cannot be started, the hub logs this and tries again later.
    public init(_ planner: ProjectPlanner, on gateway: Gateway) throws {
        let configuration = planner.configuration
        planning = Mutex(planner)
        self.gateway = gateway
        audit = OperatorAudit(fallback: configuration.dataDirectory)
        store = try ProjectStore(in: DiskDirectory(configuration.dataDirectory), key: configuration.projectKey)
        configured =
            planner.configured == nil
            ? nil : ProjectRecord(of: configuration, id: UUIDText.random(), at: Self.now)
        api = TenantsAPI(
            store, configured: configured, operators: planner.keys.operators, configuration.projectDefaults)
        guard configured != nil || !store.all.isEmpty || planner.keys.operators.hasOperators else {
            throw NoDatabase()
        }
        lanes = try ProjectLanes()
        do {
            try startAll()
            let (desk, streams) = (try QuestionDesk(.questions), try QuestionDesk(.streams))
            questions.withLock { $0 = desk }
            self.streams.withLock { $0 = streams }
            try values.start { [weak self] in self?.running.withLock { $0.byName } ?? [:] }
        } catch {
            lanes.close()
            endAll()
            throw error
        }
    }

    private var planner: ProjectPlanner { planning.withLock { $0 } }

    private static var now: Int64 { Clock.unixMicroseconds() / 1_000_000 }

    /// Running project of the settings; nil if it does not run.
    public var main: RunningProject? { project(planner.configuration.projectName) }

    func project(_ name: String) -> RunningProject? { running.withLock { $0.byName[name] } }

    // MARK: Starting

    /// Starts all projects, and returns after each has been tried once. If the only project is that of the settings and
    /// it cannot be started, throws its error.
    private func startAll() throws {
        let own = planner.configuration.projectName
        var names = store.all.map(\.externalID)
        if planner.configured != nil, !names.contains(own) { names.append(own) }
        gateway.announce(names, .starting)
        gateway.remember(deleted: store.deleted)
        let ends = Mutex<[(name: String, error: (any Error)?)]>([])
        let pulse = Pulse()
        for name in names {
            lanes.add(name) { [self] isGivenUp in
                let error = isGivenUp ? HubIsBusy() : attempt(name)
                ends.withLock { $0.append((name, error)) }
                pulse.beat()
            }
        }
        var seen: UInt64 = 0
        while seen < names.count {
            seen = pulse.wait(beyond: seen, untilMonotonic: Clock.monotonicNanoseconds() + 3_600_000_000_000)
        }
        let tried = ends.withLock { $0.count }
        assert(tried == names.count, "each project was tried once")
        guard running.withLock({ $0.byName.isEmpty }) else { return }
        if store.record(named: own) == nil, let error = ends.withLock({ $0.first { $0.name == own } })?.error {
            throw error
        }
    }

    /// Starts the project by its current description. If that fails, tries again later, until it runs or its
    /// description changes. Returns the error of this attempt; nil if the project runs.
    private func attempt(_ name: String) -> (any Error)? {
        do {
            guard let plan = plan(name) else {
                running.withLock { _ = $0.failures.removeValue(forKey: name) }
                guard api.record(name) != nil else { return nil }
                gateway.announce([name], .unconfigured)
                Log.shared.warning("a project has no database", [.project(name)])
                return nil
            }
            gateway.announce([name], .starting)
            try start(plan)
            if running.withLock({ $0.failures.removeValue(forKey: name) }) != nil {
                Log.shared.info("a project that could not be started is running now", [.project(name)])
            }
            return nil
        } catch {
            gateway.announce([name], .failed)
            let count = running.withLock { running in
                running.failures[name, default: 0] += 1
                return running.failures[name, default: 1]
            }
            let delay = Self.delay(afterFailures: count)
            Log.shared.error(
                "cannot start a project; trying again",
                [.project(name), .reason("\(error)"), .attempt(count), .delay(delay)])
            let time = Clock.monotonicNanoseconds() + delay.wholeNanoseconds
            lanes.add(name, atMonotonic: time) { [weak self] isGivenUp in self?.tryAgain(name, isGivenUp: isGivenUp) }
            return error
        }
    }

    private func tryAgain(_ name: String, isGivenUp: Bool) {
        guard running.withLock({ $0.failures[name] != nil && $0.byName[name] == nil }) else { return }
        if isGivenUp {
            let time = Clock.monotonicNanoseconds() + Limits.longestProjectRetry.wholeNanoseconds
            lanes.add(name, atMonotonic: time) { [weak self] isGivenUp in self?.tryAgain(name, isGivenUp: isGivenUp) }
        } else {
            _ = attempt(name)
        }
    }

    /// Returns the delay before the next attempt to start a project. It doubles up to a maximum, with a small random
    /// part.
    static func delay(afterFailures count: Int) -> Duration {
        let doubled = Limits.shortestProjectRetry * (1 << min(max(0, count - 1), 16))
        assert(doubled >= Limits.shortestProjectRetry, "a delay grows from the shortest")
        return min(doubled, Limits.longestProjectRetry) * Double.random(in: 0.8...1.0)
    }

    /// Returns the plan of the project from its stored record, or else from the settings. Nil if the project does not
    /// exist or has no database.
    private func plan(_ name: String) -> ProjectPlan? {
        if let record = store.record(named: name) { return planner.stored(record) }
        return isConfigured(name) ? planner.configured : nil
    }

    private func start(_ plan: ProjectPlan) throws {
        try Directories.make(plan.ingest.dataDirectory)
        let number = running.withLock { running in
            if let free = running.free.popLast() { return free }
            defer { running.next += 1 }
            return running.next
        }
        do {
            let project = try LogScope.of(plan.name) { try RunningProject(plan, number: number, on: gateway) }
            let former = running.withLock { $0.byName.updateValue(project, forKey: plan.name) }
            assert(former == nil, "a project runs once")
        } catch {
            running.withLock { $0.release(number) }
            throw error
        }
    }

    /// Stops a project and disconnects its clients, which reconnect by themselves.
    private func stop(_ name: String) {
        guard let project = running.withLock({ $0.byName.removeValue(forKey: name) }) else { return }
        LogScope.of(name) { project.stop() }
        running.withLock { $0.release(project.project.number) }
    }

    // MARK: Operations

    public func refusal(_ request: HTTPRequest, of known: Operator?, at now: Int64) -> HTTPResponse? {
        api.refusal(request, of: known, at: now)
    }

    public func answer(
        _ request: HTTPRequest, of known: Operator?, body: [UInt8], for client: WaitingClient, at now: Int64,
        later: @escaping @Sendable (HTTPResponse) -> Void
    ) -> HTTPResponse? {
        switch api.handle(request, of: known, body: body, at: now) {
        case .response(let response): return response
        case .operation(let operation, let asker):
            perform(operation, by: asker, then: later)
            return nil
        case .question(let question, let record, let asker):
            return ask(.question(question), of: record, by: asker, for: client, then: later) { [audit] run in
                { Self.audited(audit, question, by: asker, run) { run.answer() } }
            }
        case .erasure(let question, let record, let asker):
            let ingest = project(record.externalID)?.ingest
            // The erasure continues even if its client disconnects.
            return ask(.question(question), of: record, by: asker, for: WaitingClient(), then: later) { run in
                { ErasureRun(run: run, ingest: ingest).answer() }
            }
        case .follow(let question, let record, let asker):
            return follow(question, of: record, by: asker, for: client, then: later)
        case .part(let part, let record):
            return ask(.part(part), of: record, by: nil, for: client, then: later) { run in { run.answer() } }
        }
    }

    /// Returns the answer after the question is in the audit file; refuses the question if it cannot be recorded.
    private static func audited(
        _ audit: OperatorAudit, _ question: LogQuestion, by asker: Operator, _ run: QuestionRun,
        _ answer: () -> HTTPResponse
    ) -> HTTPResponse {
        do throws(AuditFailure) {
            for question in question.each { try audit.read(question.audited, by: asker, log: run.place.log) }
            return answer()
        } catch {
            return unrecorded(error)
        }
    }

    /// Returns the refusal of a request that could not be written to the audit file, and logs the reason.
    private static func unrecorded(_ failure: AuditFailure) -> HTTPResponse {
        Log.shared.error(
            "an operator's request was refused, because the audit file cannot be written", [.reason("\(failure)")])
        return .message(
            .serviceUnavailable,
            "nothing was done, because the hub cannot write its audit file: its log says why")
    }

    /// Queues a question to the project's log, which a separate process answers. Returns an answer only if the hub is
    /// still starting.
    private func ask(
        _ what: QuestionRun.What, of record: ProjectRecord, by asker: Operator?, for client: WaitingClient,
        then later: @escaping Answer,
        _ work: (QuestionRun) -> @Sendable () -> HTTPResponse
    ) -> HTTPResponse? {
        guard let desk = questions.withLock({ $0 }), let program = OwnProgram.path else {
            return TenantsAPI.failed("the hub is starting")
        }
        // A project without a stored record is that of the settings.
        let stored = store.record(named: record.externalID)
        var place = planner.questionPlace(stored, by: asker.map { OperatorAudit.name($0) })
        if case .question(let question) = what, question.each.contains(where: \.needsSecrets) {
            planner.addSecrets(of: stored, to: &place)
        }
        let run = QuestionRun(what: what, place: place, program: program, client: client)
        desk.ask(beside: run.place.log, for: asker?.subject ?? "", work(run), then: later)
        return nil
    }

    /// Queues a stream of the log's new entries. Returns an answer only if the hub is still starting.
    private func follow(
        _ question: LogQuestion, of record: ProjectRecord, by asker: Operator, for client: WaitingClient,
        then later: @escaping Answer
    ) -> HTTPResponse? {
        guard let desk = streams.withLock({ $0 }), let program = OwnProgram.path else {
            return TenantsAPI.failed("the hub is starting")
        }
        let place = planner.questionPlace(
            store.record(named: record.externalID), by: OperatorAudit.name(asker))
        let run = FollowRun(
            question: question, place: place, program: program, client: client, expiry: asker.expiry
        ) { [weak desk] in desk?.isClosed ?? true }
        desk.ask(
            beside: nil, for: asker.subject,
            { [audit] in
                do throws(AuditFailure) {
                    try audit.read(question.audited, by: asker, log: place.log)
                    return run.run()
                } catch {
                    return Self.unrecorded(error)
                }
            }, then: later)
        return nil
    }

    private func perform(_ operation: TenantsOperation, by asker: Operator, then answer: @escaping Answer) {
        // The answers about health and the cluster do not wait for other operations of the project.
        if case .health(let name) = operation { return answer(health(name)) }
        if case .cluster(let name) = operation { return answer(asked(name) { $0.clusterAnswer }) }
        lanes.add(operation.project) { [self] isGivenUp in
            if isGivenUp { return answer(TenantsAPI.failed("the hub is busy or ending")) }
            do throws(AuditFailure) {
                try record(operation, by: asker)
                answer(carryOut(operation, by: asker))
            } catch {
                answer(Self.unrecorded(error))
            }
        }
    }

    /// Writes the operator's request to the audit file, before the hub carries it out.
    private func record(_ operation: TenantsOperation, by asker: Operator) throws(AuditFailure) {
        let log = planner.questionPlace(store.record(named: operation.project)).log
        switch operation {
        case .health, .values, .cluster: break
        case .handover: try audit.note(.signal, "handover", by: asker, log: log)
        case .channels: try audit.read("channels", by: asker, log: log)
        case .blocks: try audit.read("blocks", by: asker, log: log)
        case .config: try audit.read("config", by: asker, log: log)
        case .kick(_, let kick): try audit.note(.kick, kick.audited, by: asker, because: kick.reason, log: log)
        case .unblock(_, let target): try audit.note(.unblock, "\(target.kind) \(target.name)", by: asker, log: log)
        case .signal(_, let signal): try audit.note(.signal, signal.kind.rawValue, by: asker, log: log)
        case .upsert: try audit.note(.project, "create or change \(operation.project)", by: asker, log: "")
        case .delete(_, let fate):
            // The request may delete the project's log, so the line is in the hub's own audit file.
            let what = "delete \(operation.project)" + (fate == .delete ? " and its log" : "")
            try audit.note(.project, what, by: asker, log: "")
        case .reload: try audit.note(.project, "reload \(operation.project)", by: asker, log: log)
        case .shutdown: try audit.note(.project, "shut down \(operation.project)", by: asker, log: log)
        }
    }

    private func carryOut(_ operation: TenantsOperation, by asker: Operator) -> HTTPResponse {
        switch operation {
        case .upsert(let description): upsert(description)
        case .delete(let name, let fate): delete(name, log: fate)
        case .reload(let name), .shutdown(let name): restart(name)
        case .health(let name): health(name)
        case .channels(let name):
            asked(name) { .json(.ok, ChannelCensus.take(of: $0.project, waiting: Limits.censusPatience).json) }
        case .signal(let name, let signal): asked(name) { $0.carryOut(signal) }
        case .kick(let name, let kick): asked(name) { $0.carryOut(kick, by: OperatorAudit.name(asker)) }
        case .blocks(let name): asked(name) { $0.blocks }
        case .unblock(let name, let target): asked(name) { $0.unblock(target) }
        case .config: planner.configuration.told
        case .values(let name): values.told(of: name)
        case .cluster(let name): asked(name) { $0.clusterAnswer }
        case .handover(let name): asked(name) { $0.handOver() }
        }
    }

    private func upsert(_ description: ProjectDescription) -> HTTPResponse {
        do throws(ProjectRefusal) {
            let (record, old) = try store.apply(
                description, configured: configured, planner.configuration.projectDefaults, at: Self.now,
                check: planner.checkSlot)
            assert(store.record(named: record.externalID) != nil, "a project that was described is stored")
            gateway.announce([record.externalID], .starting)
            Log.shared.info("an operator created or changed a project", [.project(record.externalID)])
            if let failure = take(record, old) { return TenantsAPI.failed(failure) }
            return api.stored(record, isNew: old == nil)
        } catch {
            switch error {
            case .mistakes(let mistakes): return TenantsAPI.refused(mistakes)
            case .store(let error):
                Log.shared.error("cannot store a project", [.reason("\(error)")])
                return TenantsAPI.failed("the project cannot be stored")
            }
        }
    }

    /// Applies a changed record to the running project, and restarts it if necessary. Returns a text with the reason if
    /// that fails; nil otherwise.
    private func take(_ record: ProjectRecord, _ old: ProjectRecord?) -> String? {
        let name = record.externalID
        let effects = old.map { record.effects(replacing: $0, planner.configuration.projectDefaults) }
        if let effects, !effects.restartsDatabase, !effects.disconnectsClients, let project = project(name) {
            if effects.changesLimits { project.project.replace(record.limits(planner.configuration.projectDefaults)) }
            return nil
        }
        if old == nil { prepare(record) }
        return restarted(name)
    }

    /// Creates in the database of a new project what the hub needs there; a failure is only logged.
    private func prepare(_ record: ProjectRecord) {
        guard let database = record.database, let preparation = planner.preparation else { return }
        do {
            try LogScope.of(record.externalID) { try preparation(ConnectionTarget(database.revealed)) }
        } catch {
            Log.shared.warning(
                "cannot prepare the database of a new project",
                [
                    .project(record.externalID), .reason("\(error)"),
                    .hint("run 'tidewire db apply' as a superuser, or as a login that may do this"),
                ])
        }
    }

    /// Restarts the project. Returns a text with the reason if that fails; nil otherwise.
    private func restarted(_ name: String) -> String? {
        stop(name)
        running.withLock { _ = $0.failures.removeValue(forKey: name) }
        return attempt(name) == nil ? nil : "the project is stored, and cannot be started; the hub tries again"
    }

    /// Deletes a project. Succeeds if it does not exist. The log stays on the disk unless the request says otherwise,
    /// so that operators can still ask what happened.
    private func delete(_ name: String, log fate: LogFate) -> HTTPResponse {
        let staysConfigured = isConfigured(name) && planner.configured != nil
        do throws(ProjectStoreError) {
            guard let record = try store.remove(name, remembering: !staysConfigured) else { return TenantsAPI.done }
            // Only the stored description was removed. The project continues as the settings describe it.
            if staysConfigured {
                return restarted(name).map(TenantsAPI.failed) ?? TenantsAPI.done
            }
            stop(name)
            running.withLock { _ = $0.failures.removeValue(forKey: name) }
            gateway.remember(deleted: [name])
            dropSlot(of: record)
            return giveUpLog(of: record, fate)
        } catch {
            Log.shared.error("cannot delete a project", [.project(name), .reason("\(error)")])
            return TenantsAPI.failed("the project cannot be deleted")
        }
    }

    /// Deletes the event log of a deleted project, or keeps it, as the request says. Always keeps the log of the
    /// settings' project.
    private func giveUpLog(of record: ProjectRecord, _ fate: LogFate) -> HTTPResponse {
        let (name, directory) = (record.externalID, planner.directory(of: record))
        if isConfigured(name) {
            let own = planner.configuration.dataDirectory + "/log"
            guard fate == .delete, Directories.isDirectory(own) else { return TenantsAPI.done }
            Log.shared.warning(
                "deleted a project; its event log stays, because it lies in the hub's own data directory",
                [.project(name), .path(own), .hint("remove that directory while the hub is stopped")])
            return TenantsAPI.failed(
                "the project is deleted; its event log stays, because it lies in the hub's own data directory")
        }
        guard Directories.isDirectory(directory) else {
            Log.shared.info("deleted a project; it had no event log", [.project(name)])
            return TenantsAPI.done
        }
        guard fate == .delete else {
            Log.shared.info("deleted a project; its event log stays", [.project(name), .path(directory)])
            return TenantsAPI.done
        }
        assert(
            directory.hasPrefix(planner.configuration.dataDirectory + "/projects/"),
            "a deleted project takes no directory but its own with it")
        do throws(SystemError) {
            try Directories.removeAll(directory)
            Log.shared.info("deleted a project and its event log", [.project(name), .path(directory)])
            return TenantsAPI.done
        } catch {
            Log.shared.error(
                "deleted a project, but cannot delete its event log",
                [.project(name), .path(directory), .reason("\(error)"), .hint("remove that directory")])
            return TenantsAPI.failed("the project is deleted, but its event log cannot be deleted")
        }
    }

    /// Drops the replication slot of a deleted project, because PostgreSQL keeps WAL without end for a slot that
    /// nothing reads. The slot stays if another project may use it.
    private func dropSlot(of record: ProjectRecord) {
        guard let place = planner.place(of: record) else { return }
        let others = store.all.compactMap(planner.place) + [planner.configuredPlace].compactMap(\.self)
        let fields: [LogField] = [.project(record.externalID), .slot(place.slot)]
        guard !others.contains(where: place.mayBe) else {
            return Log.shared.info(
                "the replication slot of a deleted project stays, because another project uses it", fields)
        }
        do throws(PostgresError) {
            try place.drop()
        } catch {
            Log.shared.warning(
                "cannot drop the replication slot of a deleted project: PostgreSQL keeps WAL for it",
                fields + [
                    .reason("\(error)"),
                    .hint("SELECT pg_drop_replication_slot('\(place.slot)') in that database"),
                ])
        }
    }

    private func restart(_ name: String) -> HTTPResponse {
        guard plan(name) != nil else { return TenantsAPI.notFound }
        return restarted(name).map(TenantsAPI.failed) ?? TenantsAPI.done
    }

    private func isConfigured(_ name: String) -> Bool { name == planner.configuration.projectName }

    private func health(_ name: String) -> HTTPResponse {
        guard let record = api.record(name) else { return TenantsAPI.notFound }
        let project = project(name)
        let condition = project?.project.condition()
        return ProjectHealth(
            isDatabaseConnected: condition?.isCatalogKnown ?? false, isReplicating: condition?.isStreaming ?? false,
            clients: project?.project.userCount ?? 0, region: record.region ?? planner.configuration.region,
            node: "tidewire@\(HostName.current)"
        ).response
    }

    /// Returns the answer that `answer` gives for the running project, or the one for a project that does not exist or
    /// run.
    private func asked(_ name: String, _ answer: (RunningProject) -> HTTPResponse) -> HTTPResponse {
        guard let project = project(name) else {
            return api.record(name) == nil
                ? TenantsAPI.notFound : .message(.serviceUnavailable, "the project does not run")
        }
        return LogScope.of(name) { answer(project) }
    }

    // MARK: Ending

    /// Refuses new requests and ends all waiting ones. The caller must call this before it stops the loops.
    public func close() {
        values.close()
        streams.withLock { $0 }?.close()
        questions.withLock { $0 }?.close()
        lanes.close()
        audit.end()
    }

    /// Ends all projects in parallel. The caller calls this after clients and loops have ended.
    public func endAll() {
        var threads: [BackgroundThread] = []
        for project in running.withLock({ Array($0.byName.values) }) {
            do throws(SystemError) {
                threads.append(try BackgroundThread("project-end") { project.end() })
            } catch {
                project.end()
            }
        }
        for thread in threads { thread.join() }
    }

    /// Reads the file of the setting `mask_rules` again for the log of each project. After an error a log keeps its
    /// former rules.
    public func renewMaskRules() {
        for (name, project) in running.withLock({ $0.byName }) {
            do {
                guard try project.ingest.renewMaskRules() else { continue }
                Log.shared.info("wrote the new mask rules of the event log", [.project(name)])
            } catch {
                Log.shared.error(
                    "cannot use the new mask rules: readers of the event log obey the old ones",
                    [.project(name), .reason("\(error)")])
            }
        }
    }

    /// Replaces the token keys of the settings with those that were read again from their files.
    public func replace(_ keys: TokenKeys) {
        planning.withLock { $0.keys = keys }
        let name = planner.configuration.projectName
        guard store.record(named: name) == nil else { return }
        main?.replace(keys.clients)
    }
}

/// Error for a project's operation that the hub ended before it began.
private struct HubIsBusy: Error, CustomStringConvertible {
    var description: String { "the hub has no thread for it" }
}

extension TenantsOperation {
    /// Name of the project that the operation concerns.
    fileprivate var project: String {
        switch self {
        case .upsert(let description): description.externalID ?? ""
        case .delete(let name, _), .reload(let name), .shutdown(let name), .health(let name), .channels(let name),
            .signal(let name, _), .kick(let name, _), .blocks(let name), .unblock(let name, _), .config(let name),
            .values(let name), .cluster(let name), .handover(let name):
            name
        }
    }
}
