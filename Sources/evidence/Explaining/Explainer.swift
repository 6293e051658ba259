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

/// Explains to an operator who was told of a change.
///
/// In: a change of the log, and somebody with claims. Out: each step of the way, by the same code that serves clients, on
/// connections of its own: no hub has to run, and one that runs is not disturbed. It writes nothing into the database.
public final class Explainer {
    public struct Settings: Sendable {
        /// Nil: what only a database can say is not known.
        public var database: ConnectionTarget?
        /// Whose connections run policies; nil is the hub's own login.
        public var policies: ConnectionTarget?
        public var publication: String
        public var deletesAreStrict: Bool
        /// What the catalog said when the change was committed; nil is what it says now.
        public var past: CatalogRecord?
        /// What memberships were then is found there; nil is what they are now.
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

        /// Of a binding that the ledger has.
        public init(_ change: RecordedChange, to holder: ExplainedHolder, _ binding: ListedBinding) {
            self.init(change, to: holder, filter: binding.wholeFilter)
        }
    }

    let settings: Settings
    let catalog: CatalogService?
    let judge: PolicyEvaluator?
    /// The catalog as it was then.
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

    /// A record that another version made is of no use where this one asks other questions.
    private static func past(_ settings: Settings, _ recorder: PartRecorder) -> CatalogView? {
        settings.past.flatMap { record in
            try? CatalogTrial(record, compiling: recorder.compiling).view(for: record.roles)
        }
    }

    /// What is known of the tables, then or now.
    var snapshot: CatalogSnapshot? { past?.snapshot ?? catalog?.snapshot }

    /// Whether changes are judged by the catalog as it was then.
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

    /// That a table's every change comes down the stream is known only once older transactions are over.
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

    /// The filter as a whole, and each of its conditions by itself.
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

extension FilterCondition {
    /// As a filter of its own.
    fileprivate var written: String {
        let list = comparison == .in ? "(" + value.dropFirst().dropLast() + ")" : value
        return "\(column)=\(isNegated ? "not." : "")\(comparison.rawValue).\(list)"
    }
}

extension RowOperations {
    /// Of a row's operation; nothing for what has no row.
    init(_ operation: Operation) {
        switch operation {
        case .insert: self = .insert
        case .update: self = .update
        case .delete: self = .delete
        case .truncate, .message: self = []
        }
    }
}
