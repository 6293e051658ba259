import Catalog
import Change
import Diagnostics
@_spi(Judging) import History
import Judging
import Policy
import Postgres
import Protocol
import Replication
import System

/// Explanation, for operators, why the hub sent a change to a client or did not.
///
/// Takes a change of the log and a holder's claims. Returns each step of the decision. The code that serves clients
/// computes the steps, on separate connections. No hub needs to run, and a running hub is not disturbed. The explainer
/// writes nothing into the database.
public final class Explainer {
    public struct Settings: Sendable {
        /// Database to ask; nil if only the log is available. Results that need a database are then unknown.
        public var database: ConnectionTarget?
        /// Login whose connections run policies; nil means the hub's own login.
        public var policies: ConnectionTarget?
        public var publication: String
        public var deletesAreStrict: Bool
        /// Catalog at the time of the change; nil means the present catalog.
        public var past: CatalogRecord?
        /// Log that supplies memberships at the time of the change; nil means present memberships.
        public var log: HistoryLog?

        public init(
            database: ConnectionTarget?, policies: ConnectionTarget? = nil, publication: String,
            deletesAreStrict: Bool = true
        ) {
            self.database = database
            self.policies = policies
            self.publication = publication
            self.deletesAreStrict = deletesAreStrict
        }
    }

    public struct Question: Sendable {
        public var change: RecordedChange
        public var holder: ExplainedHolder
        public var filter: String?
        public var operations: RowOperations

        public init(
            _ change: RecordedChange, to holder: ExplainedHolder, filter: String? = nil,
            operations: RowOperations = .all
        ) {
            self.change = change
            self.holder = holder
            self.filter = filter
            self.operations = operations
        }

        /// Creates the question about one binding that the ledger recorded.
        public init(_ change: RecordedChange, to holder: ExplainedHolder, _ binding: ListedBinding) {
            self.init(change, to: holder, filter: binding.wholeFilter)
        }
    }

    let settings: Settings
    let catalog: CatalogService?
    let judge: PolicyEvaluator?
    /// Catalog at the time of the change; nil if the present catalog is used.
    let past: CatalogView?
    let recorder = PartRecorder()
    static let patience = Duration.seconds(20)

    public convenience init(_ settings: Settings) throws {
        try self.init(settings, clientRoles: ["anon", "authenticated"])
    }

    init(_ settings: Settings, clientRoles: [String]) throws {
        self.settings = settings
        past = Self.past(settings, recorder)
        guard let database = settings.database else {
            (catalog, judge) = (nil, nil)
            if past == nil { throw ExplainFailure.databaseAway }
            return
        }
        var catalog = CatalogService.Settings(
            target: database, publication: settings.publication, pollInterval: .milliseconds(100))
        catalog.compiling = recorder.compiling
        catalog.tendsPublication = false
        catalog.coverage = StreamCoverage(followedSince: .zero)
        let service = try CatalogService(catalog)
        service.addBindings(1)
        self.catalog = service
        var judging = PolicyEvaluator.Settings(database: database, policies: settings.policies)
        judging.clientRoles = clientRoles
        do {
            judge = try PolicyEvaluator(judging)
        } catch {
            service.stop()
            throw error
        }
    }

    deinit {
        catalog?.stop()
        judge?.stop()
    }

    /// Returns the view of the recorded catalog. Nil if another version of the program wrote the record and this
    /// version cannot use it.
    private static func past(_ settings: Settings, _ recorder: PartRecorder) -> CatalogView? {
        settings.past.flatMap { record in
            try? CatalogTrial(record, compiling: recorder.compiling).view(for: record.roles)
        }
    }

    /// Snapshot of the catalog at the time of the change, or else of the present catalog; nil if there is neither.
    var snapshot: CatalogSnapshot? { past?.snapshot ?? catalog?.snapshot }

    /// True if changes are evaluated by the catalog at the time of the change.
    public var isOfThen: Bool { past != nil }

    func freshSnapshot() -> CatalogSnapshot? {
        if let past { return past.snapshot }
        guard let catalog else { return nil }
        let known = Awaiting.answer(within: Self.patience) { catalog.refresh(then: $0) }
        return known ?? nil
    }

    public func explain(_ question: Question) throws(ExplainFailure) -> Explanation {
        let operation = RowOperations(question.change.operation)
        guard !operation.isEmpty, let relation = question.change.relation?.relation else { throw .noRow }
        guard let snapshot = freshSnapshot() else { throw .databaseAway }
        var explanation = Explanation(
            holder: "\(question.holder.name(question.change.discretion)) (\(question.holder.role))",
            publication: publication(snapshot.table(relation.schema, relation.name), operation))
        explanation.isOfThen = isOfThen
        if let record = settings.past {
            explanation.notes.append(
                isOfThen
                    ? "rights and policies are those of then, as they were recorded at \(TimeText.json(record.time))"
                    : "rights and policies are those of now: the record of then is one of another version")
        }
        explanation.wantsOperation = question.operations.contains(operation)
        guard explanation.publication.isPublished else { return explanation.concluded(question) }
        let request = BindingRequest(
            role: question.holder.role, schema: relation.schema, table: relation.name, filter: question.filter,
            operations: question.operations)
        switch resolve(request) {
        case .unavailable: throw past == nil ? .databaseAway : .roleNotRecorded(question.holder.role)
        case .failed(let message):
            explanation.role = role(request, nil)
            explanation.binding = .failed(message.text)
        case .tables(let tables):
            guard let binding = tables.first else { throw .databaseAway }
            explanation.role = role(request, binding.table)
            explanation.binding = Explainer.binding(binding)
            try judge(binding, question, &explanation)
        }
        return explanation.masked(question.change.discretion).concluded(question)
    }

    // MARK: The catalog

    private func publication(_ table: CatalogTable?, _ operation: RowOperations) -> Explanation.Publication {
        Explanation.Publication(
            name: settings.publication, isPublished: table != nil, operations: table?.operations ?? [],
            hasOperation: table?.operations.contains(operation) ?? false)
    }

    private func resolved(_ request: BindingRequest) -> BindingOutcome {
        if let past { return past.outcome(of: request, canonical: \.text) ?? .unavailable }
        guard let catalog else { return .unavailable }
        let answer = Awaiting.answer(within: Self.patience) { then in
            catalog.resolve([request]) { outcomes, _ in then(outcomes) }
        }
        return answer?.first ?? .unavailable
    }

    /// Returns the binding as the hub would set it up. Retries while older transactions run: only after their end is it
    /// known that the stream has all changes of the table.
    func resolve(_ request: BindingRequest) -> BindingOutcome {
        var outcome = resolved(request)
        guard past == nil else { return outcome }
        for _ in 0..<20 {
            guard case .tables(let tables) = outcome, let policy = tables.first?.policy,
                policy.parts.contains(where: { $0.term == .undecided && mayBeDecidedLater($0, policy.table) })
            else { return outcome }
            BackgroundThread.rest(nanoseconds: 100_000_000)
            outcome = resolved(request)
        }
        return outcome
    }

    private func mayBeDecidedLater(_ part: PolicyBinding.Part, _ table: UInt32) -> Bool {
        recorder.isDecided(part.text, on: table)
    }

    private func role(_ request: BindingRequest, _ table: CatalogTable?) -> Explanation.Role {
        let roles = past?.roles ?? catalog?.known.look(up: request)?.view.roles
        let access = table.flatMap { roles?.access[AccessKey(role: request.role, table: $0.oid)] }
        let names = { (slots: [Int]) in slots.compactMap { table?.columns[$0].name } }
        return Explanation.Role(
            name: request.role, exists: roles?.existing.contains(request.role) ?? true,
            hasUsage: access?.hasUsage ?? false, selectable: names(access?.selectable ?? []),
            hidden: names(access?.hidden.sorted() ?? []), isRowSecurityActive: access?.rowSecurityIsActive ?? true)
    }

    private static func binding(_ binding: TableBinding) -> Explanation.Binding {
        switch binding.access {
        case .readable: .sent(columns: binding.delivered.map { binding.table.columns[$0].name })
        case .unauthorized: .unauthorized
        case .noPrimaryKey: .noPrimaryKey
        }
    }

    // MARK: The filter's parts

    /// Returns the filter as a whole, then each of its conditions.
    func filterParts(_ filter: String?, _ binding: TableBinding, _ question: Question) -> [(String, Int, Predicate)] {
        guard let filter, let whole = binding.predicate else { return [] }
        let bounds = Filter.Bounds(
            bytes: Limits.maximumFilterBytes, conditions: Limits.maximumFilterConditions,
            depth: Limits.maximumFilterDepth)
        let conditions = (try? Filter.parse(filter, within: bounds))??.conditions ?? []
        guard conditions.count > 1 else { return [(filter, 0, whole)] }
        var parts = [(filter, 0, whole)]
        for condition in conditions {
            let request = BindingRequest(
                role: question.holder.role, schema: binding.table.schema, table: binding.table.name,
                filter: condition.written, operations: question.operations)
            if case .tables(let tables) = resolved(request), let predicate = tables.first?.predicate {
                parts.append((condition.written, 1, predicate))
            }
        }
        return parts
    }
}

extension RowOperations {
    /// Converts the operation of a change to a set; empty for operations without a row.
    init(_ operation: Operation) {
        switch operation {
        case .insert: self = .insert
        case .update: self = .update
        case .delete: self = .delete
        case .truncate, .message: self = []
        }
    }
}
