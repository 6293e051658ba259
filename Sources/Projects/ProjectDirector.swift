import Diagnostics
import Gateway
import Ingest
import Postgres
import Replication
import Settings
import Synchronization
import System
import WebSocket

/// There is no project, and nobody who could make one.
public struct NoDatabase: Error, CustomStringConvertible {
    public var description: String {
        "no database is configured: set TIDEWIRE_DATABASE_URL (or --database-url, or DB_HOST, DB_USER, DB_PASSWORD, "
            + "DB_NAME), or run 'tidewire dev' for one that is made for you"
    }
}

/// Starts and ends projects, as the settings, the store and operators want it.
///
/// In: operations from any thread. Out: their answers, on a thread of its own, where it does one after the other: ending a
/// project waits for its threads and its clients.
public final class ProjectDirector: Operators {
    typealias Answer = @Sendable (HTTPResponse) -> Void

    private struct Running {
        var byName: [String: RunningProject] = [:]
        var free: [UInt32] = []
        var next: UInt32 = 0
    }

    private struct Jobs {
        var waiting: [(operation: TenantsOperation, answer: Answer)] = []
        var isClosed = false
    }

    let api: TenantsAPI
    private let planner: ProjectPlanner
    private let store: ProjectStore
    private let configured: ProjectRecord?
    private let gateway: Gateway
    private let running = Mutex(Running())
    private let jobs = Mutex(Jobs())
    private let pulse = Pulse()
    private let thread = Mutex<BackgroundThread?>(nil)
    /// From when all else is there.
    private let questions = Mutex<QuestionDesk?>(nil)

    /// Starts every project there is. One that cannot be started is said in the log; the others run.
    public init(_ planner: ProjectPlanner, on gateway: Gateway) throws {
        let configuration = planner.configuration
        self.planner = planner
        self.gateway = gateway
        store = try ProjectStore(in: DiskDirectory(configuration.dataDirectory), key: configuration.projectKey)
        configured =
            planner.configured == nil
            ? nil : ProjectRecord(of: configuration, id: UUIDText.random(), at: Self.now)
        api = TenantsAPI(
            store, configured: configured, operators: planner.keys.operators, configuration.projectDefaults)
        guard configured != nil || !store.all.isEmpty || planner.keys.operators.hasOperators else {
            throw NoDatabase()
        }
        try startAll()
        let thread = try BackgroundThread("projects") { [unowned self] in work() }
        self.thread.withLock { $0 = thread }
        let desk = try QuestionDesk()
        questions.withLock { $0 = desk }
    }

    private static var now: Int64 { Clock.unixMicroseconds() / 1_000_000 }

    /// The project of the settings' name.
    public var main: RunningProject? { project(planner.configuration.projectName) }

    func project(_ name: String) -> RunningProject? { running.withLock { $0.byName[name] } }

    // MARK: Starting

    private func startAll() throws {
        let records = store.all
        let name = planner.configuration.projectName
        // Where only the settings' own cannot start, nothing can: the reason is the program's.
        if let plan = planner.configured, !records.contains(where: { $0.externalID == name }) { try start(plan) }
        for record in records {
            do {
                try start(record)
            } catch {
                Log.shared.error(
                    "a project cannot be started", [.project(record.externalID), .reason("\(error)")])
            }
        }
    }

    private func start(_ record: ProjectRecord) throws {
        guard let plan = planner.stored(record) else {
            return Log.shared.warning("a project has no database", [.project(record.externalID)])
        }
        try start(plan)
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
            running.withLock { $0.byName[plan.name] = project }
        } catch {
            running.withLock { $0.free.append(number) }
            throw error
        }
    }

    /// Its clients are sent away, and come back by themselves.
    private func stop(_ name: String) {
        guard let project = running.withLock({ $0.byName.removeValue(forKey: name) }) else { return }
        LogScope.of(name) { project.stop() }
        running.withLock { $0.free.append(project.project.number) }
    }

    // MARK: Operations

    public func refusal(_ request: HTTPRequest, at now: Int64) -> HTTPResponse? { api.refusal(request, at: now) }

    public func answer(
        _ request: HTTPRequest, body: [UInt8], at now: Int64, later: @escaping @Sendable (HTTPResponse) -> Void
    ) -> HTTPResponse? {
        switch api.handle(request, body: body, at: now) {
        case .response(let response): return response
        case .operation(let operation):
            perform(operation, then: later)
            return nil
        case .question(let question, let record):
            return ask(.question(question), of: record, then: later) { run in { run.answer() } }
        case .erasure(let question, let record):
            let ingest = project(record.externalID)?.ingest
            return ask(.question(question), of: record, then: later) { run in
                { ErasureRun(run: run, ingest: ingest).answer() }
            }
        case .part(let part, let record):
            return ask(.part(part), of: record, then: later) { run in { run.answer() } }
        }
    }

    private func ask(
        _ what: QuestionRun.What, of record: ProjectRecord, then later: @escaping Answer,
        _ work: (QuestionRun) -> @Sendable () -> HTTPResponse
    ) -> HTTPResponse? {
        guard let desk = questions.withLock({ $0 }), let program = OwnProgram.path else {
            return TenantsAPI.failed("the hub is starting")
        }
        // What is not stored is of the settings.
        let stored = store.record(named: record.externalID)
        let run = QuestionRun(what: what, place: planner.questionPlace(stored), program: program)
        desk.ask(beside: run.place.log, work(run), then: later)
        return nil
    }

    private func perform(_ operation: TenantsOperation, then answer: @escaping Answer) {
        let isTaken = jobs.withLock { jobs in
            guard !jobs.isClosed, jobs.waiting.count < Limits.maximumWaitingOperations else { return false }
            jobs.waiting.append((operation, answer))
            return true
        }
        if isTaken { pulse.beat() } else { answer(TenantsAPI.failed("the hub is busy or ending")) }
    }

    private func work() {
        var seen: UInt64 = 0
        while true {
            let (job, isClosed) = jobs.withLock { jobs in
                (jobs.waiting.isEmpty ? nil : jobs.waiting.removeFirst(), jobs.isClosed)
            }
            if let job {
                job.answer(isClosed ? TenantsAPI.failed("the hub is ending") : carryOut(job.operation))
            } else if isClosed {
                return
            } else {
                seen = pulse.wait(beyond: seen, untilMonotonic: Clock.monotonicNanoseconds() + 3_600_000_000_000)
            }
        }
    }

    private func carryOut(_ operation: TenantsOperation) -> HTTPResponse {
        switch operation {
        case .upsert(let description): upsert(description)
        case .delete(let name, let fate): delete(name, log: fate)
        case .reload(let name), .shutdown(let name): restart(name)
        case .health(let name): health(name)
        case .channels(let name):
            asked(name) { .json(.ok, ChannelCensus.take(of: $0.project, waiting: Limits.censusPatience).json) }
        case .signal(let name, let signal): asked(name) { $0.carryOut(signal) }
        }
    }

    private func upsert(_ description: ProjectDescription) -> HTTPResponse {
        do throws(ProjectRefusal) {
            let (record, old) = try store.apply(
                description, configured: configured, planner.configuration.projectDefaults, at: Self.now)
            Log.shared.info("a project was described", [.project(record.externalID)])
            if let failure = take(record, old) { return TenantsAPI.failed(failure) }
            return api.stored(record, isNew: old == nil)
        } catch {
            switch error {
            case .mistakes(let mistakes): return TenantsAPI.refused(mistakes)
            case .store(let error):
                Log.shared.error("a project cannot be stored", [.reason("\(error)")])
                return TenantsAPI.failed("the project cannot be stored")
            }
        }
    }

    /// In words what failed of it.
    private func take(_ record: ProjectRecord, _ old: ProjectRecord?) -> String? {
        let name = record.externalID
        let effects = old.map { record.effects(replacing: $0, planner.configuration.projectDefaults) }
        if let effects, !effects.restartsDatabase, !effects.disconnectsClients, let project = project(name) {
            if effects.changesLimits { project.project.replace(record.limits(planner.configuration.projectDefaults)) }
            return nil
        }
        if old == nil { prepare(record) }
        stop(name)
        return attempt(name) { try start(record) }
    }

    private func prepare(_ record: ProjectRecord) {
        guard let database = record.database, let preparation = planner.preparation else { return }
        do {
            try LogScope.of(record.externalID) { try preparation(ConnectionTarget(database.revealed)) }
        } catch {
            Log.shared.warning(
                "a new project's database could not be prepared",
                [
                    .project(record.externalID), .reason("\(error)"),
                    .hint("tidewire db apply, with a login that may"),
                ])
        }
    }

    private func attempt(_ name: String, _ body: () throws -> Void) -> String? {
        do {
            try body()
            return nil
        } catch {
            Log.shared.error("a project cannot be started", [.project(name), .reason("\(error)")])
            return "the project is stored, and cannot be started"
        }
    }

    /// One that is not there is gone already. Unless it is told otherwise its log stays on the disk, for whoever asks later
    /// what happened.
    private func delete(_ name: String, log fate: LogFate) -> HTTPResponse {
        let record = store.record(named: name)
        do throws(ProjectStoreError) {
            guard try store.remove(name), let record else { return TenantsAPI.done }
            stop(name)
            if isConfigured(name) { return startConfigured(name) }
            dropSlot(of: record)
            return giveUpLog(of: record, fate)
        } catch {
            Log.shared.error("a project cannot be deleted", [.project(name), .reason("\(error)")])
            return TenantsAPI.failed("the project cannot be deleted")
        }
    }

    /// As the settings have it, where another description of it went.
    private func startConfigured(_ name: String) -> HTTPResponse {
        if let plan = planner.configured, let failure = attempt(name, { try start(plan) }) {
            return TenantsAPI.failed(failure)
        }
        return TenantsAPI.done
    }

    private func giveUpLog(of record: ProjectRecord, _ fate: LogFate) -> HTTPResponse {
        let (name, directory) = (record.externalID, planner.directory(of: record))
        guard Directories.isDirectory(directory) else {
            Log.shared.info("a project was deleted; it had no event log", [.project(name)])
            return TenantsAPI.done
        }
        guard fate == .delete else {
            Log.shared.info("a project was deleted; its event log stays", [.project(name), .path(directory)])
            return TenantsAPI.done
        }
        do throws(SystemError) {
            try Directories.removeAll(directory)
            Log.shared.info("a project was deleted, and its event log too", [.project(name), .path(directory)])
            return TenantsAPI.done
        } catch {
            Log.shared.error(
                "a project was deleted; its event log could not be",
                [.project(name), .path(directory), .reason("\(error)"), .hint("remove that directory")])
            return TenantsAPI.failed("the project is deleted, and its event log could not be")
        }
    }

    /// A slot that nobody reads makes the server keep WAL for ever; one that another project reads stays.
    private func dropSlot(of record: ProjectRecord) {
        guard let place = planner.place(of: record) else { return }
        let others = store.all.compactMap(planner.place) + [planner.configuredPlace].compactMap(\.self)
        let fields: [LogField] = [.project(record.externalID), .slot(place.slot)]
        guard !others.contains(where: place.mayBe) else {
            return Log.shared.info("the slot of a deleted project stays, as another project has the same", fields)
        }
        do throws(PostgresError) {
            try place.drop()
        } catch {
            Log.shared.warning(
                "the slot of a deleted project is still there: PostgreSQL keeps WAL for it",
                fields + [
                    .reason("\(error)"),
                    .hint("SELECT pg_drop_replication_slot('\(place.slot)') in that database"),
                ])
        }
    }

    private func restart(_ name: String) -> HTTPResponse {
        let stored = store.record(named: name)
        let plan =
            stored.flatMap { planner.stored($0) } ?? (stored == nil && isConfigured(name) ? planner.configured : nil)
        guard let plan else { return TenantsAPI.notFound }
        stop(name)
        if let failure = attempt(name, { try start(plan) }) { return TenantsAPI.failed(failure) }
        return TenantsAPI.done
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

    private func asked(_ name: String, _ answer: (RunningProject) -> HTTPResponse) -> HTTPResponse {
        guard let project = project(name) else {
            return api.record(name) == nil
                ? TenantsAPI.notFound : .message(.serviceUnavailable, "the project does not run")
        }
        return LogScope.of(name) { answer(project) }
    }

    // MARK: Ending

    /// No more is begun. Before the loops end.
    public func close() {
        questions.withLock { $0 }?.close()
        jobs.withLock { $0.isClosed = true }
        pulse.beat()
        thread.withLock { $0 }?.join()
    }

    /// When clients and loops are gone already.
    public func endAll() {
        for project in running.withLock({ Array($0.byName.values) }) { project.end() }
    }

    /// Keys that the settings name, read again.
    public func replace(_ keys: TokenKeys) {
        let name = planner.configuration.projectName
        guard store.record(named: name) == nil else { return }
        main?.replace(keys.clients)
    }
}
