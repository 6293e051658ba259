import Bytes
import Change
import Diagnostics

/// What rows are, for when they are deleted or get another key: the rows of tables that policies guard and whose changes
/// name the row that was by its key only.
///
/// It passes over changes as the loop does, so that what it knows is how rows are where the loop stands. It need not know
/// all: what it does not remember is looked for in the log.
struct RowRecall {
    /// What is known of a row that was.
    enum Past {
        /// It is of no concern here, or the change itself tells.
        case untold
        /// The row as it was, as its schema is where it is deleted or replaced.
        case row([UInt8])
        /// Nobody knows.
        case missing
        /// The log has to be asked.
        case unknown
    }

    private struct Row {
        let relation: UInt64
        /// Nil where the log does not have it.
        let tuple: [UInt8]?
        var isFromLog = false

        var byteCount: Int { (tuple?.count ?? 0) + Limits.recalledRowBytes }
    }

    /// How a schema of a table tells its rows apart.
    private struct Plan {
        let relation: Relation
        let names: [String]
        /// Nil where nothing has to be remembered.
        let columns: RowColumns?

        init(_ relation: Relation) {
            self.relation = relation
            let isNamed = relation.identity == .primaryKey || relation.identity == .index
            names = isNamed ? relation.columns.filter(\.isIdentity).map(\.name) : []
            columns = names.isEmpty ? nil : RowColumns(names, in: relation)
        }
    }

    /// How many want to hear what a table's rows were.
    private var watched: [UInt32: Int] = [:]
    /// Two generations: what is used lately, and what was before.
    private var rows: [RowID: Row] = [:]
    private var olderRows: [RowID: Row] = [:]
    private var rowBytes = 0
    private var plans: [UInt64: Plan] = [:]
    /// By which columns the rows of a table are known.
    private var names: [UInt32: [String]] = [:]

    // MARK: Which tables

    var isWatching: Bool { !watched.isEmpty }

    mutating func watch(_ table: UInt32) { watched[table, default: 0] += 1 }

    /// Rows are kept until the next transaction: who was replaced may come back at once.
    mutating func leave(_ table: UInt32) { watched[table, default: 1] -= 1 }

    /// Nobody follows what happens to the rows of tables that are not watched.
    mutating func settle() {
        guard watched.contains(where: { $0.value == 0 }) else { return }
        for (table, count) in watched where count == 0 {
            watched[table] = nil
            forget(table)
        }
    }

    mutating func forgetAll() {
        rows = [:]
        olderRows = [:]
        rowBytes = 0
        plans = [:]
        names = [:]
    }

    private mutating func forget(_ table: UInt32) {
        names[table] = nil
        rows = rows.filter { $0.key.table != table }
        olderRows = olderRows.filter { $0.key.table != table }
        rowBytes = rows.values.reduce(0) { $0 + $1.byteCount }
    }

    // MARK: Passing over changes

    /// Takes note of a change, once it is done with; of a delete, and of an update that names the row that was, what that
    /// row was. Without `mayAsk` what is unknown is missing; where the log has to be asked nothing has happened.
    mutating func pass(_ change: borrowing Change, _ relation: Relation, mayAsk: Bool) throws(ByteError) -> Past {
        guard watched[relation.oid] != nil else { return .untold }
        let plan = plan(change.relation, relation)
        if names[relation.oid] != plan.names {
            forget(relation.oid)
            names[relation.oid] = plan.names
        }
        guard let columns = plan.columns else { return .untold }
        switch change.operation {
        case .truncate: dropRows(of: relation.oid)
        case .insert: try note(change, plan, columns)
        case .update:
            let past = try past(of: change, plan, columns, mayAsk: mayAsk)
            if case .unknown = past { return past }
            try note(change, plan, columns)
            return past
        case .delete:
            let past = try past(of: change, plan, columns, mayAsk: mayAsk)
            if case .unknown = past { return past }
            if change.oldImage == .key, let old = change.old, let id = try columns.id(of: old) { _ = remove(id) }
            return past
        case .message: break
        }
        return .untold
    }

    private mutating func plan(_ fingerprint: UInt64, _ relation: Relation) -> Plan {
        if let known = plans[fingerprint] { return known }
        // What is remembered may need the schemas that are forgotten.
        if plans.count >= Limits.maximumCachedRelations { forgetAll() }
        let plan = Plan(relation)
        plans[fingerprint] = plan
        return plan
    }

    private mutating func dropRows(of table: UInt32) {
        let names = names[table]
        forget(table)
        self.names[table] = names
    }

    private mutating func note(
        _ change: borrowing Change, _ plan: Plan, _ columns: RowColumns
    ) throws(ByteError) {
        guard let new = change.new else { return }
        var former: (id: RowID, row: Row)?
        if change.oldImage == .key, let old = change.old, let id = try columns.id(of: old) {
            if let row = remove(id) { former = (id, row) }
        }
        var tuple: [UInt8]?
        if try new.isPartial() {
            let current = try columns.id(of: new).flatMap { find($0) }
            tuple = try complete(change, plan, from: former?.row ?? current)
        }
        let whole = tuple ?? new.bytes.copied()
        guard let id = try columns.id(of: whole.asTuple) else {
            // Some row is another now, and it cannot be told which.
            return dropRows(of: plan.relation.oid)
        }
        guard whole.count <= Limits.maximumRecalledRowBytes else {
            _ = remove(id)
            return
        }
        add(Row(relation: change.relation, tuple: whole), as: id)
    }

    /// The row after an update, with the values that it left as they were.
    private func complete(
        _ change: borrowing Change, _ plan: Plan, from former: Row?
    ) throws(ByteError) -> [UInt8] {
        var sources = [ComposedRow.Source(tuple: change.new?.bytes.copied() ?? [], relation: plan.relation)]
        if let old = change.old {
            sources.append(
                ComposedRow.Source(
                    tuple: old.bytes.copied(), relation: plan.relation, isKeyOnly: change.oldImage == .key))
        }
        if let former, let tuple = former.tuple, let relation = plans[former.relation]?.relation {
            sources.append(ComposedRow.Source(tuple: tuple, relation: relation))
        }
        return try ComposedRow.compose(plan.relation, from: sources)
    }

    private func past(
        of change: borrowing Change, _ plan: Plan, _ columns: RowColumns, mayAsk: Bool
    ) throws(ByteError) -> Past {
        guard change.oldImage == .key, let old = change.old, let id = try columns.id(of: old) else { return .untold }
        guard let row = find(id), try isSame(row, old, plan, columns) else {
            if mayAsk { return .unknown }
            Metrics.shared.recalls[.missing].add()
            return .missing
        }
        guard let tuple = row.tuple, let relation = plans[row.relation]?.relation else {
            Metrics.shared.recalls[.missing].add()
            return .missing
        }
        Metrics.shared.recalls[row.isFromLog ? .log : .memory].add()
        return .row(
            try ComposedRow.compose(
                plan.relation,
                from: [
                    ComposedRow.Source(tuple: old.bytes.copied(), relation: plan.relation, isKeyOnly: true),
                    ComposedRow.Source(tuple: tuple, relation: relation),
                ]))
    }

    private func isSame(
        _ row: Row, _ old: borrowing Tuple, _ plan: Plan, _ columns: RowColumns
    ) throws(ByteError) -> Bool {
        guard let tuple = row.tuple else { return true }
        guard let relation = plans[row.relation]?.relation, let theirs = RowColumns(plan.names, in: relation) else {
            return false
        }
        return try theirs.isSame(tuple.asTuple, as: old, columns)
    }

    // MARK: Memory

    private func find(_ id: RowID) -> Row? { rows[id] ?? olderRows[id] }

    private mutating func remove(_ id: RowID) -> Row? {
        let older = olderRows.removeValue(forKey: id)
        guard let row = rows.removeValue(forKey: id) else { return older }
        rowBytes -= row.byteCount
        return row
    }

    private mutating func add(_ row: Row, as id: RowID) {
        _ = remove(id)
        rows[id] = row
        rowBytes += row.byteCount
        guard rowBytes > Limits.maximumRecalledBytes / 2 else { return }
        olderRows = rows
        rows = [:]
        rowBytes = 0
    }

    // MARK: Asking the log

    /// What the log said of rows, as they were when it was asked: nothing has been passed since.
    mutating func fill(_ request: RecallRequest, _ answers: [RecallAnswer]) {
        for (row, answer) in zip(request.rows, answers) where watched[row.id.table] != nil {
            switch answer {
            case .version(let fingerprint, let relation, let tuple):
                _ = plan(fingerprint, relation)
                add(Row(relation: fingerprint, tuple: tuple, isFromLog: true), as: row.id)
            case .missing: add(Row(relation: row.relation, tuple: nil), as: row.id)
            case .postponed: break
            }
        }
    }

    /// Adds the rows that the part's next changes name by their keys only and that are not known; false when these were enough.
    @_lifetime(part: copy part)
    mutating func collect(
        _ part: inout TransactionPart, into request: inout RecallRequest, _ relations: (UInt64) -> Relation?
    ) throws(ByteError) -> Bool {
        while request.rows.count < Limits.recallBatchRows, let change = try part.next() {
            guard change.relation != 0 else { continue }
            guard let relation = relations(change.relation) else { return false }
            guard watched[relation.oid] != nil else { continue }
            let plan = plan(change.relation, relation)
            // Where rows are told apart otherwise, or all go, what is asked for now says nothing about what follows.
            guard let columns = plan.columns, let known = names[relation.oid] else { continue }
            guard known == plan.names, change.operation != .truncate else { return false }
            try collect(change, columns, relation, into: &request)
        }
        return request.rows.count < Limits.recallBatchRows
    }

    private func collect(
        _ change: borrowing Change, _ columns: RowColumns, _ relation: Relation, into request: inout RecallRequest
    ) throws(ByteError) {
        try collectFormer(of: change, columns, relation, into: &request)
        if let new = change.new, let id = try columns.id(of: new) { request.touched.insert(id) }
    }

    private func collectFormer(
        of change: borrowing Change, _ columns: RowColumns, _ relation: Relation, into request: inout RecallRequest
    ) throws(ByteError) {
        guard change.oldImage == .key, let old = change.old, let id = try columns.id(of: old) else { return }
        // What happened to the row between here and there will be known then.
        guard request.touched.insert(id).inserted, find(id) == nil else { return }
        request.relations[change.relation] = relation
        request.rows.append(RecallRequest.Row(id: id, relation: change.relation, key: old.bytes.copied()))
    }
}
