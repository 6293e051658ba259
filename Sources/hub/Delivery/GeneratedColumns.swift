import Bytes
import Catalog
import Change
import Diagnostics
import Judging

/// Generated columns that PostgreSQL's stream leaves out. The hub asks PostgreSQL for their values and adds them to the
/// changes before any other code reads these.
///
/// An expression always gives the same value for the same inputs, so the hub remembers values by expression and inputs.
/// The loop waits at an entry until it knows all values that the entry needs.
struct GeneratedColumns {
    /// Key of a computed value: a generated column and the values of its inputs. The same key always has the same
    /// value.
    public struct Key: Hashable {
        var column: GeneratedColumn
        var inputs: [String?]
    }

    /// Values that the hub must ask PostgreSQL for.
    struct Batch {
        fileprivate var keys: [UInt32: [GeneratedColumn: [Key]]] = [:]
        fileprivate var known: Set<Key> = []
        var rowCount: Int { known.count }
        var isEmpty: Bool { known.isEmpty }

        fileprivate mutating func add(_ key: Key, of table: UInt32) {
            if known.insert(key).inserted { keys[table, default: [:]][key.column, default: []].append(key) }
        }
    }

    /// Tables with bindings (by OID), each with the number of its bindings by role.
    private var watched: [UInt32: [String: Int]] = [:]
    /// Plans for adding generated columns, by schema fingerprint; nil if a schema has nothing to compute.
    private var plans: [UInt64: GenerationPlan?] = [:]
    private var relations: [UInt64: Relation] = [:]
    /// Values used recently. When they become too many they move to `olderValues`, whose former content is dropped. No
    /// value is removed while an entry needs it.
    private var values: [Key: GeneratedValue] = [:]
    private var olderValues: [Key: GeneratedValue] = [:]
    private var valueBytes = 0
    /// Keys of values that PostgreSQL failed to compute for the current entry.
    private var failed: [Key] = []
    /// Columns, by table, that PostgreSQL could not compute for some row. The loop has not reported them yet.
    private var missed: [UInt32: Set<String>] = [:]
    /// Columns, by table, whose failure the hub has logged since the catalog last changed.
    private var reported: [UInt32: Set<String>] = [:]
    private let metrics: ProjectMetrics

    init(_ metrics: ProjectMetrics) { self.metrics = metrics }

    // MARK: Tables

    /// True if some binding is on a table with generated columns.
    var isWatching: Bool { !watched.isEmpty }

    mutating func watch(_ table: UInt32, as role: String) { watched[table, default: [:]][role, default: 0] += 1 }

    mutating func leave(_ table: UInt32, as role: String) {
        guard let count = watched[table]?[role] else { return }
        watched[table]?[role] = count > 1 ? count - 1 : nil
        if watched[table]?.isEmpty == true { watched[table] = nil }
    }

    /// Forgets the plans for adding generated columns, because the catalog changed. Computed values stay valid.
    mutating func forgetPlans() {
        plans = [:]
        relations = [:]
        reported = [:]
    }

    /// Returns the schema with generated columns that has this fingerprint; nil if the fingerprint is not of such a
    /// schema.
    func relation(_ fingerprint: UInt64) -> Relation? { relations[fingerprint] }

    private mutating func plan(
        _ fingerprint: UInt64, _ relation: Relation, _ snapshot: CatalogSnapshot
    ) -> GenerationPlan? {
        if let known = plans[fingerprint] { return known }
        if plans.count >= Limits.maximumCachedRelations { forgetPlans() }
        let plan = snapshot.table(relation.oid).flatMap {
            GenerationPlan(
                relation, fingerprint: fingerprint, $0, unreadable: snapshot.policies.typesCastFromText)
        }
        plans[fingerprint] = .some(plan)
        if let plan { relations[plan.fingerprint] = plan.relation }
        return plan
    }

    private mutating func plan(
        _ fingerprint: UInt64, _ relations: (UInt64) -> Relation?, _ snapshot: CatalogSnapshot
    ) -> GenerationPlan? {
        guard fingerprint != 0, let relation = relations(fingerprint), watched[relation.oid] != nil else { return nil }
        return plan(fingerprint, relation, snapshot)
    }

    // MARK: Questions

    /// Adds to the batch all unknown values of generated columns in the part's rows. Returns false if no row has a
    /// generated column to compute.
    @_lifetime(part: copy part)
    mutating func collect(
        _ part: inout TransactionPart, into batch: inout Batch, _ relations: (UInt64) -> Relation?,
        _ snapshot: CatalogSnapshot
    ) throws(ByteError) -> Bool {
        var isConcerned = false
        while let change = try part.next() {
            guard !change.isForgotten, let plan = plan(change.relation, relations, snapshot) else { continue }
            isConcerned = true
            let inputs = try GenerationInputs(change)
            if inputs.hasNew { collect(inputs, isOld: false, plan, into: &batch) }
            if inputs.hasWholeOld { collect(inputs, isOld: true, plan, into: &batch) }
        }
        return isConcerned
    }

    private func collect(_ inputs: GenerationInputs, isOld: Bool, _ plan: GenerationPlan, into batch: inout Batch) {
        for computed in plan.computed {
            guard let texts = inputs.texts(computed, plan, isOld: isOld) else { continue }
            let key = Key(column: computed.column, inputs: texts)
            if value(key) == nil { batch.add(key, of: plan.source.oid) }
        }
    }

    /// Adds to the batch all unknown values of generated columns in whole rows that were found in the log.
    mutating func collect(
        _ answers: [RecallAnswer], into batch: inout Batch, _ snapshot: CatalogSnapshot
    ) throws(ByteError) {
        for case .version(let fingerprint, let relation, let tuple) in answers where watched[relation.oid] != nil {
            guard let plan = plan(fingerprint, relation, snapshot) else { continue }
            collect(try GenerationInputs(row: tuple), isOld: false, plan, into: &batch)
        }
    }

    private func value(_ key: Key) -> GeneratedValue? { values[key] ?? olderValues[key] }

    /// Returns the questions to PostgreSQL about the batch's values, in the order in which `fill` expects the answers.
    func requests(_ batch: Batch) -> [GenerationRequest] {
        GeneratedColumns.order(batch).map { table, columns in
            GenerationRequest(
                table: table, roles: (watched[table]?.keys.sorted() ?? []),
                questions: columns.map { column, keys in
                    GenerationQuestion(column: column, rows: keys.map(\.inputs))
                })
        }
    }

    private static func order(_ batch: Batch) -> [(UInt32, [(GeneratedColumn, [Key])])] {
        batch.keys.sorted { $0.key < $1.key }.map { table, columns in
            (table, columns.sorted { $0.key.name < $1.key.name }.map { ($0.key, $0.value) })
        }
    }

    mutating func fill(_ batch: Batch, _ answers: [[[GeneratedValue]]]) {
        for ((_, columns), ofTable) in zip(GeneratedColumns.order(batch), answers) {
            for ((_, keys), found) in zip(columns, ofTable) {
                for (key, value) in zip(keys, found) { remember(value, key) }
            }
        }
    }

    private mutating func remember(_ value: GeneratedValue, _ key: Key) {
        metrics.generatedValues.add()
        values[key] = value
        valueBytes += Limits.generatedValueBytes + PolicyQuestion.bytes(key.inputs)
        if case .text(let text) = value { valueBytes += text.utf8.count }
        // PostgreSQL may be able to compute the value later.
        if value == .failed { failed.append(key) }
    }

    /// Ends a log entry: forgets values that PostgreSQL failed to compute, and drops the older values if there are too
    /// many.
    mutating func settle() {
        for key in failed {
            values[key] = nil
            olderValues[key] = nil
        }
        failed = []
        guard valueBytes > Limits.maximumGeneratedBytes / 2 else { return }
        olderValues = values
        values = [:]
        valueBytes = 0
    }

    // MARK: Composed changes

    /// Returns the part of a transaction with generated columns added: the same changes in the same order. All values
    /// must be known.
    @_lifetime(part: copy part)
    mutating func compose(
        _ part: inout TransactionPart, _ relations: (UInt64) -> Relation?, _ snapshot: CatalogSnapshot
    ) throws(ByteError) -> [UInt8] {
        var writer = ByteWriter(capacity: 2 * part.bytes.byteCount)
        TransactionCodec.begin(part.info, firstIndex: part.firstIndex, to: &writer)
        while let change = try part.next() {
            if !change.isForgotten, let plan = plan(change.relation, relations, snapshot) {
                try compose(change, plan, to: &writer)
            } else {
                TransactionCodec.append(
                    change.operation, relation: change.relation, oldImage: change.oldImage,
                    old: change.images.extracting(first: change.oldLength),
                    new: change.images.extracting(droppingFirst: change.oldLength), options: change.options,
                    isForgotten: change.isForgotten, to: &writer)
            }
        }
        TransactionCodec.finish(endLSN: part.info.endLSN, changeCount: part.changeCount, in: &writer)
        return writer.copied()
    }

    private mutating func compose(
        _ change: borrowing Change, _ plan: GenerationPlan, to writer: inout ByteWriter
    ) throws(ByteError) {
        let inputs = try GenerationInputs(change)
        let new = values(inputs, isOld: false, plan)
        var old = inputs.hasWholeOld ? values(inputs, isOld: true, plan) : plan.computed.map { _ in nil }
        if inputs.hasNew {
            // If the new row lacks a value, the old value is omitted too. Otherwise the column would seem unchanged.
            for (index, value) in new.enumerated() where value == nil { old[index] = nil }
        }
        TransactionCodec.append(
            change.operation, relation: plan.fingerprint, oldImage: change.oldImage,
            old: inputs.image(isOld: true, plan, old).asBytes, new: inputs.image(isOld: false, plan, new).asBytes,
            options: change.options, to: &writer)
    }

    private mutating func values(
        _ inputs: GenerationInputs, isOld: Bool, _ plan: GenerationPlan
    ) -> [GeneratedValue?] {
        plan.computed.map { computed in
            guard let texts = inputs.texts(computed, plan, isOld: isOld) else { return nil }
            let value = value(Key(column: computed.column, inputs: texts)) ?? .failed
            guard value == .failed else { return value }
            if !isOld { metrics.generatedFailures.add() }
            miss(computed.column.name, plan.source)
            return nil
        }
    }

    private mutating func miss(_ column: String, _ relation: Relation) {
        missed[relation.oid, default: []].insert(column)
        guard reported[relation.oid, default: []].insert(column).inserted else { return }
        Log.shared.warning(
            "cannot compute a generated column: changes lack it, and filters and policies that read it match nothing",
            [
                .relation("\(relation)"), .reason("column \(SQLName.quoted(column))"),
                .hint(
                    "grant the client roles EXECUTE on the functions of its expression, which runs with search_path pg_catalog"
                ),
            ])
    }

    /// Adds generated columns to rows that were found in the log.
    mutating func composed(
        _ answers: [RecallAnswer], _ snapshot: CatalogSnapshot
    ) throws(ByteError) -> [RecallAnswer] {
        var composed: [RecallAnswer] = []
        for answer in answers {
            guard case .version(let fingerprint, let relation, let tuple) = answer, watched[relation.oid] != nil,
                let plan = plan(fingerprint, relation, snapshot)
            else {
                composed.append(answer)
                continue
            }
            let inputs = try GenerationInputs(row: tuple)
            let row = inputs.image(isOld: false, plan, values(inputs, isOld: false, plan))
            composed.append(.version(plan.fingerprint, plan.relation, row))
        }
        return composed
    }

    /// Removes and returns the columns, by table, that PostgreSQL could not compute for some row.
    mutating func takeMissed() -> [UInt32: Set<String>] {
        defer { missed = [:] }
        return missed
    }
}
