import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import Judging

/// Values that the changes of the current entry lack, and that PostgreSQL or the log has: generated columns, values in
/// the types of the present columns, and rows of which a change has only the key.
struct EntryValues {
    /// Values that the hub must get before it can deliver the current change.
    enum Missing {
        case nothing
        /// The row of the change, as the log has it.
        case row
        /// Values of another type than their columns have now.
        case values
    }

    private enum Composition {
        /// The hub has not looked for generated columns in the entry yet.
        case unknown
        case asItIs
        /// The entry's bytes, rewritten with the values of the generated columns.
        case composed([UInt8])
    }

    private var generation: GeneratedColumns
    private var composition = Composition.unknown
    /// Values of the entry's rows in the types that their columns have now.
    private var converted: ConvertedRows?
    /// Change for whose row the hub last asked the log, and the era of that question. The answer counts in the same era
    /// only.
    private var asked: (change: UInt32, era: UInt64)?

    init(_ metrics: ProjectMetrics) { generation = GeneratedColumns(metrics) }

    /// Ends an entry, or the progress on one that is read anew.
    mutating func finishEntry() {
        composition = .unknown
        converted = nil
        asked = nil
        generation.settle()
    }

    /// Begins a transaction in which names or labels have another meaning.
    mutating func forgetPlans() { generation.forgetPlans() }

    /// Takes note of a new catalog. Converted values have the types of the earlier catalog.
    mutating func catalogHasChanged() {
        converted = nil
        generation.forgetPlans()
        composition = .unknown
    }

    /// Returns the schema of a change, to which generated columns may have been added.
    func relation(_ fingerprint: UInt64, _ schemas: SchemaRegistry) throws(ByteError) -> Relation {
        if let relation = schemas.relation(fingerprint) ?? generation.relation(fingerprint) { return relation }
        return try schemas.relation(of: fingerprint)
    }

    // MARK: Generated columns

    /// True if somebody follows a table with generated columns.
    var isComputing: Bool { generation.isWatching }

    /// Has the table's generated columns computed for the role. The current entry is looked through for them again; the
    /// number of its changes stays the same.
    mutating func watch(_ table: UInt32, as role: String) {
        generation.watch(table, as: role)
        composition = .unknown
    }

    mutating func leave(_ table: UInt32, as role: String) { generation.leave(table, as: role) }

    /// Returns the columns that could not be computed for some row since the last call, by table.
    mutating func takeMissed() -> [UInt32: Set<String>] { generation.takeMissed() }

    /// True if the entry has not been looked through for generated columns yet.
    var isUncomposed: Bool { if case .unknown = composition { true } else { false } }

    /// Bytes of the entry with its generated columns; nil if it has none.
    var composed: [UInt8]? { if case .composed(let bytes) = composition { bytes } else { nil } }

    /// Adds the values of generated columns to the entry. Returns the rows whose values must be computed first; nil if
    /// all are known.
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

    /// Collects the rows of later entries that need values, up to where definitions may change.
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

    /// Returns the questions about the rows, in the order in which `fill` takes the answers.
    func requests(_ batch: GeneratedColumns.Batch) -> [GenerationRequest] { generation.requests(batch) }

    mutating func fill(_ batch: GeneratedColumns.Batch, _ answers: [[[GeneratedValue]]]) {
        generation.fill(batch, answers)
    }

    // MARK: Conversion of values

    /// Returns the request for the converted values of the current change, and of later changes in its entry.
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

    mutating func take(_ rows: ConvertedRows) { converted = rows }

    // MARK: Earlier rows

    /// Notes that the log is asked for the row of a change.
    mutating func ask(for change: UInt32, in era: UInt64) { asked = (change, era) }

    /// True if the log may be asked for the row of the change. It is asked once for each catalog: another one may name
    /// rows differently, and what was known of them is forgotten.
    func mayAsk(for change: UInt32, in era: UInt64) -> Bool { asked?.change != change || asked?.era != era }

    /// True if the answers of the log count. Another catalog may have come since the question, which may name rows
    /// differently.
    func counts(in era: UInt64) -> Bool { asked?.era == era }

    /// Takes the log's answers, and remembers the rows. Returns the rows whose generated columns must be computed first.
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

    /// Remembers the rows, with the values of their generated columns.
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

    /// Marks the rows of the request as missing, because this program cannot read them in the log; the client is told.
    private func cannotRecall(_ request: RecallRequest, _ error: any Error, _ router: inout ChangeRouter) {
        Log.shared.error("cannot decode rows found in the event log", [.reason("\(error)")])
        let answers = request.rows.map { _ in RecallAnswer.unread }
        router.missUnread(request, answers)
        fill(request, answers, &router)
    }

    /// Gives the rows to the memory, unless another catalog has come since the question.
    private func fill(_ request: RecallRequest, _ answers: [RecallAnswer], _ router: inout ChangeRouter) {
        if counts(in: router.recall.era) { router.recall.fill(request, answers) }
    }

    // MARK: Completion

    /// Finds the values that a judged change's images lack, if some client looks at them.
    ///
    /// - Parameters:
    ///   - place: index of the change among those that were judged.
    ///   - number: index of the change in its entry.
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
    /// Filters are then tried on the delete's own values, and reveal nothing more of the row.
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
