import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import Judging

/// Values that the changes of the current entry lack and that the hub gets elsewhere. PostgreSQL computes generated
/// columns and converts values to current types. The log has the rows of which a change has only the key.
struct EntryValues {
    /// Values that the hub must get elsewhere before it can deliver a change.
    enum Missing {
        case nothing
        /// The whole row of the change, which the log may have.
        case row
        /// Values that PostgreSQL must convert to the current types of their columns.
        case values
    }

    private enum Composition {
        /// The hub has not searched the entry for generated columns yet.
        case unknown
        case asItIs
        /// The entry's bytes, rewritten with the values of the generated columns.
        case composed([UInt8])
    }

    private var generation: GeneratedColumns
    private var composition = Composition.unknown
    /// Values of the current entry's rows, converted to the types that their columns have now.
    private var converted: ConvertedRows?
    /// Change for whose row the hub last asked the log, with the era of `RowRecall` when it asked. The answer is valid
    /// only in that era.
    private var asked: (change: UInt32, era: UInt64)?

    init(_ metrics: ProjectMetrics) { generation = GeneratedColumns(metrics) }

    /// Resets the progress on the current log entry, because the entry is done or will be read again.
    mutating func finishEntry() {
        composition = .unknown
        converted = nil
        asked = nil
        generation.settle()
    }

    /// Forgets how to compute generated columns, because names of columns or labels of enum types mean something else
    /// in the next transaction.
    mutating func forgetPlans() { generation.forgetPlans() }

    /// Adapts to a new catalog. Converted values are dropped, because they have the types of the earlier one.
    mutating func catalogHasChanged() {
        converted = nil
        generation.forgetPlans()
        composition = .unknown
    }

    /// Returns the schema of a change, with generated columns if the hub added them.
    func relation(_ fingerprint: UInt64, _ schemas: SchemaRegistry) throws(ByteError) -> Relation {
        if let relation = schemas.relation(fingerprint) ?? generation.relation(fingerprint) { return relation }
        return try schemas.relation(of: fingerprint)
    }

    // MARK: Generated columns

    /// True if some binding is on a table with generated columns.
    var isComputing: Bool { generation.isWatching }

    /// Adds a role with which PostgreSQL may compute the table's generated columns. The hub then searches the current
    /// entry for such columns again; the entry keeps its number of changes.
    mutating func watch(_ table: UInt32, as role: String) {
        generation.watch(table, as: role)
        composition = .unknown
    }

    mutating func leave(_ table: UInt32, as role: String) { generation.leave(table, as: role) }

    /// Removes and returns the columns, by table, that PostgreSQL could not compute for some row.
    mutating func takeMissed() -> [UInt32: Set<String>] { generation.takeMissed() }

    /// True if the hub has not searched the current entry for generated columns yet.
    var isUncomposed: Bool { if case .unknown = composition { true } else { false } }

    /// Bytes of the current entry with its generated columns added; nil if it has none.
    var composed: [UInt8]? { if case .composed(let bytes) = composition { bytes } else { nil } }

    /// Adds the values of generated columns to the current entry. Returns the rows whose values PostgreSQL must compute
    /// first; nil if all are known.
    mutating func compose(
        _ feed: borrowing LogFeed, _ schemas: SchemaRegistry, _ snapshot: CatalogSnapshot
    ) throws -> GeneratedColumns.Batch? {
        let doubted = schemas.doubtedSchemas
        var part = try TransactionPart(feed.payload, doubting: doubted.span)
        var whole = part
        var batch = GeneratedColumns.Batch()
        guard try generation.collect(&part, into: &batch, { schemas.relation($0) }, snapshot) else {
            composition = .asItIs
            return nil
        }
        guard batch.isEmpty else {
            try collectAhead(feed, schemas, snapshot, into: &batch)
            return batch
        }
        composition = .composed(try generation.compose(&whole, { schemas.relation($0) }, snapshot))
        return nil
    }

    /// Collects rows of later entries that need values, up to an entry after which definitions may differ.
    private mutating func collectAhead(
        _ feed: borrowing LogFeed, _ schemas: SchemaRegistry, _ snapshot: CatalogSnapshot,
        into batch: inout GeneratedColumns.Batch
    ) throws {
        var left = Limits.generationAheadBytes
        var newer: [UInt64: Relation] = [:]
        var reader = feed.ahead()
        while left > 0, batch.rowCount < Limits.generationBatchRows, reader.looksAhead() {
            left -= reader.entry.header.byteCount
            switch reader.entry.kind {
            case .gap, .catalogMark: return
            case .relation:
                let fingerprint = RelationCodec.fingerprint(of: reader.payload)
                newer[fingerprint] = schemas.read(try RelationCodec.decode(reader.payload), fingerprint).relation
            case .transaction:
                var part = try TransactionPart(reader.payload)
                let known = newer
                _ = try generation.collect(&part, into: &batch, { known[$0] ?? schemas.relation($0) }, snapshot)
            default: break
            }
        }
    }

    /// Returns the questions to PostgreSQL about the batch's generated columns. `fill` expects the answers in the same
    /// order.
    func requests(_ batch: GeneratedColumns.Batch) -> [GenerationRequest] { generation.requests(batch) }

    mutating func fill(_ batch: GeneratedColumns.Batch, _ answers: [[[GeneratedValue]]]) {
        generation.fill(batch, answers)
    }

    // MARK: Conversion of values

    /// Returns the request to convert values to the current types of their columns: of the current change, and of later
    /// changes in its entry.
    static func conversion(
        of payload: RawSpan, after done: UInt32, _ schemas: SchemaRegistry
    ) throws(ByteError) -> ConversionRequest {
        let doubted = schemas.doubtedSchemas
        var part = try TransactionPart(payload, doubting: doubted.span)
        for _ in 0..<done { _ = try part.next() }
        var request = ConversionRequest(from: done)
        while !request.isFull, let change = try part.next() {
            try request.add(change, schemas.foreignColumns(change.relation))
        }
        return request
    }

    /// Stores the values that PostgreSQL converted, for the changes of the current entry.
    mutating func take(_ rows: ConvertedRows) { converted = rows }

    // MARK: Earlier rows

    /// Records that the hub asks the log for the row of a change.
    mutating func ask(for change: UInt32, in era: UInt64) { asked = (change, era) }

    /// True if the hub may ask the log for the row of the change. It asks once in each era: in a new era, columns may
    /// have other names and remembered rows are forgotten.
    func mayAsk(for change: UInt32, in era: UInt64) -> Bool { asked?.change != change || asked?.era != era }

    /// True if an answer of the log is still valid: the era of `RowRecall` has not changed since the question.
    func counts(in era: UInt64) -> Bool { asked?.era == era }

    /// Remembers the rows that the log returned, and returns nil. If PostgreSQL must compute generated columns of some
    /// rows first, returns those rows instead; the caller then calls `remember` with the values.
    ///
    /// - Parameter snapshot: definitions of generated columns; nil if there is nothing to compute.
    mutating func take(
        _ answers: [RecallAnswer], to request: RecallRequest, _ snapshot: CatalogSnapshot?, _ router: inout ChangeRouter
    ) -> GeneratedColumns.Batch? {
        router.missUnread(request, answers)
        if let snapshot {
            do {
                var batch = GeneratedColumns.Batch()
                try generation.collect(answers, into: &batch, snapshot)
                if !batch.isEmpty { return batch }
            } catch {
                cannotRecall(request, error, &router)
                return nil
            }
        }
        remember(answers, to: request, snapshot, &router)
        return nil
    }

    /// Adds the rows, completed with the values of their generated columns, to the memory of rows.
    mutating func remember(
        _ answers: [RecallAnswer], to request: RecallRequest, _ snapshot: CatalogSnapshot?, _ router: inout ChangeRouter
    ) {
        do {
            let answers = try snapshot.map { try generation.composed(answers, $0) } ?? answers
            fill(request, answers, &router)
        } catch {
            cannotRecall(request, error, &router)
        }
    }

    /// Treats the requested rows as unread, because this program cannot decode them. The hub tells the affected clients
    /// that they may have missed changes.
    private func cannotRecall(_ request: RecallRequest, _ error: any Error, _ router: inout ChangeRouter) {
        Log.shared.error("cannot decode rows found in the event log", [.reason("\(error)")])
        let answers = request.rows.map { _ in RecallAnswer.unread }
        router.missUnread(request, answers)
        fill(request, answers, &router)
    }

    /// Stores the found rows in the memory of rows, unless the era of `RowRecall` has changed since the question.
    private func fill(_ request: RecallRequest, _ answers: [RecallAnswer], _ router: inout ChangeRouter) {
        if counts(in: router.recall.era) { router.recall.fill(request, answers) }
    }

    // MARK: Completion

    /// Finds the values that the row images of a change lack, if some client needs them, and stores them in
    /// `completion`. Returns what the hub must still get elsewhere before it can deliver the change.
    ///
    /// - Parameters:
    ///   - place: index of the change in the group that was matched.
    ///   - number: index of the change in its entry.
    ///   - isWanted: true if some listener may receive the change.
    func complete(
        _ change: borrowing Change, at place: Int, number: UInt32, isWanted: Bool, _ router: inout ChangeRouter,
        _ schemas: SchemaRegistry, _ sources: DeliverySources, _ completion: inout Completion?
    ) throws(ByteError) -> Missing {
        let foreign = isWanted ? schemas.foreignColumns(change.relation) : nil
        if foreign != nil, converted.map({ number >= $0.end }) ?? true { return .values }
        let isLacking = isWanted ? try router.needsRow(at: place, change) : false
        let isNeeded = isLacking && !Self.isOpenDelete(change, schemas, sources)
        let isConcerned = router.recall.isConcerned(with: change.relation)
        if !isLacking, foreign == nil, !isConcerned { return .nothing }
        var known = RowRecall.Known()
        if isNeeded || isConcerned {
            let relation = try relation(change.relation, schemas)
            let past = try router.recall.pass(
                change, relation, isWaiting: isWanted, isNeeded: isNeeded && schemas.isRecallable(relation.oid),
                mayAsk: mayAsk(for: number, in: router.recall.era), isBroken: schemas.isBroken(relation.oid))
            switch past {
            case .untold, .missing: break
            case .row(let found): known = found
            case .unknown: return .row
            }
        }
        let isCompleted = isWanted && (known.whole != nil || isLacking || foreign != nil)
        if !isCompleted, known.former == nil { return .nothing }
        let whole = isCompleted ? try wholeChange(change, number, known.whole, foreign, schemas) : nil
        completion = Completion(whole, former: known.former)
        return .nothing
    }

    /// True if the hub sends this delete to every client that asked for deletes, no matter who could see the row.
    /// Filters then read only the values in the delete itself, so that they reveal nothing more of the row.
    private static func isOpenDelete(
        _ change: borrowing Change, _ schemas: SchemaRegistry, _ sources: DeliverySources
    ) -> Bool {
        guard change.operation == .delete, !sources.deletesAreStrict else { return false }
        guard let oid = schemas.relation(change.relation)?.oid, let table = sources.catalog.snapshot?.table(oid) else {
            return true
        }
        return table.hasRowSecurity
    }

    private func wholeChange(
        _ change: borrowing Change, _ number: UInt32, _ row: [UInt8]?, _ foreign: ForeignColumns?,
        _ schemas: SchemaRegistry
    ) throws(ByteError) -> WholeChange {
        let relation = try relation(change.relation, schemas)
        guard let foreign else {
            guard let row else { return WholeChange(asIs: change, relation) }
            return WholeChange(change, row: row, relation, change.relation)
        }
        let (old, new) = (converted?.old[number] ?? [:], converted?.new[number] ?? [:])
        let isDelete = change.operation == .delete
        var oldRow: [UInt8] = []
        if let row = change.old { oldRow = try foreign.rewritten(row, old) }
        if let row {
            let row = try foreign.rewritten(row.asTuple, isDelete ? old : new)
            return WholeChange(change, row: row, old: oldRow, foreign.converted, foreign.fingerprint)
        }
        guard let current = change.new else {
            return WholeChange(change, images: oldRow, [], foreign.converted, foreign.fingerprint)
        }
        let newRow = try foreign.rewritten(current, new)
        return WholeChange(change, images: oldRow, newRow, foreign.converted, foreign.fingerprint)
    }
}
