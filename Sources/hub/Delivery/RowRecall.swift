import Bytes
import Change
import Diagnostics

/// Memory of rows, for changes that do not contain the whole row. It covers tables with policies, if their changes
/// contain only the key of the old row. It also covers tables of which a client recently needed a value that a change
/// omitted.
///
/// The memory sees each change when the loop delivers it, so its rows are current for the loop's position. It need not
/// have every row: the hub searches the log for the others.
struct RowRecall {
    /// Result of looking up the row of a change.
    enum Past {
        /// No client needs the row, or the change itself contains it.
        case untold
        /// The row was found; its values are in the schema of the change.
        case row(Known)
        /// Neither the memory nor the log has the row.
        case missing
        /// The memory does not have the row: the hub must search the log.
        case unknown
    }

    struct Known {
        /// Whole row: before the change if it is a delete, else after it.
        var whole: [UInt8]?
        /// Old row of an update whose own old image has at most the key.
        var former: [UInt8]?
    }

    private struct Row {
        let relation: UInt64
        /// Image of the remembered row; nil if the log does not have it.
        let tuple: [UInt8]?
        /// True if this is the result of a search of the log, so that another search would find no more.
        var isFromLog = false
        /// True if the log could not be read at the last search. The hub searches it again for the row's next change.
        var isUnread = false
        /// True if the remembered image still lacks values.
        var isPartial = false

        var byteCount: Int { (tuple?.count ?? 0) + Limits.recalledRowBytes }
    }

    /// Columns by which the rows of one schema are identified.
    private struct Plan {
        let relation: Relation
        let names: [String]
        /// Columns that identify a row; nil if the changes contain whole old rows or none, so that nothing is
        /// remembered.
        let columns: RowColumns?

        init(_ relation: Relation) {
            self.relation = relation
            let isNamed = relation.identity == .primaryKey || relation.identity == .index
            names = isNamed ? relation.columns.filter(\.isIdentity).map(\.name) : []
            columns = names.isEmpty ? nil : RowColumns(names, in: relation)
        }
    }

    /// Number of bindings, by table, for which the memory must keep the table's rows.
    private var watched: [UInt32: Int] = [:]
    /// Number of bindings, by table, for which the hub looks up the old rows of updates: their clients asked for
    /// departures (rows that updates move out of their view), or their filters read the row before the change.
    private var oldRowsWatched: [UInt32: Int] = [:]
    /// Tables (by OID) whose rows are remembered for a while, because a client needed a value that a change omitted.
    private var needed: [UInt32: Need] = [:]

    private struct Need {
        var changesLeft = Limits.recallFollowedChanges
        /// True if an update omitted values: the hub then remembers all rows. If only deletes did, it searches the log
        /// instead.
        var isOfUpdates = false
    }

    /// Rows used recently. When they take too much memory they become `olderRows`.
    private var rows: [RowID: Row] = [:]
    /// Rows used before. They are dropped when the next rows become older.
    private var olderRows: [RowID: Row] = [:]
    private var rowBytes = 0
    private var plans: [UInt64: Plan] = [:]
    /// Names of a table's replica identity columns, by which its rows are remembered.
    private var names: [UInt32: [String]] = [:]
    /// Fingerprint of the last change's schema, if changes of that schema contain whole rows; zero otherwise. It saves
    /// a lookup, because the next change mostly has the same schema.
    private var wholeRowSchema: UInt64 = 0

    private let found: CounterFamily<ProjectMetrics.Recall>

    /// Creates an empty memory of rows.
    ///
    /// - Parameter found: counters of the lookups by the place where the row was found.
    init(_ found: CounterFamily<ProjectMetrics.Recall>) { self.found = found }

    // MARK: Tables

    var isWatching: Bool { !watched.isEmpty || !needed.isEmpty }

    mutating func watch(_ table: UInt32) { watched[table, default: 0] += 1 }

    /// Stops watching the table for one binding. Its rows are kept until the next transaction, because the binding may
    /// be placed again immediately.
    mutating func leave(_ table: UInt32) {
        assert(watched[table, default: 0] > 0, "a table is left by who watched it")
        watched[table, default: 1] -= 1
    }

    mutating func watchOldRows(_ table: UInt32) {
        watch(table)
        oldRowsWatched[table, default: 0] += 1
    }

    mutating func leaveOldRows(_ table: UInt32) {
        leave(table)
        assert(oldRowsWatched[table, default: 0] > 0, "a table is left by who watched it")
        oldRowsWatched[table, default: 1] -= 1
        if oldRowsWatched[table] == 0 { oldRowsWatched[table] = nil }
    }

    /// Forgets the rows of tables that no binding watches any more, because the hub no longer follows their changes.
    mutating func settle() {
        guard watched.contains(where: { $0.value == 0 }) else { return }
        for (table, count) in watched where count == 0 {
            watched[table] = nil
            if needed[table] == nil { forget(table) }
        }
    }

    private func follows(_ table: UInt32) -> Bool { watched[table] != nil || needed[table] != nil }

    /// Makes the memory follow the table for a while after a client needed a row, even if no binding watches the table.
    private mutating func note(isNeeded: Bool, by change: borrowing Change, _ table: UInt32) {
        if isNeeded {
            let isOfUpdates = change.operation == .update || needed[table]?.isOfUpdates == true
            needed[table] = Need(isOfUpdates: isOfUpdates)
        } else if let left = needed[table]?.changesLeft {
            if left > 1 {
                needed[table]?.changesLeft = left - 1
            } else {
                needed[table] = nil
                if watched[table] == nil { forget(table) }
            }
        }
    }

    private func remembersRows(of table: UInt32) -> Bool { watched[table] != nil || needed[table]?.isOfUpdates == true }

    /// Number of times that all rows were forgotten because columns may have another meaning. Answers to requests of an
    /// earlier era are invalid.
    private(set) var era: UInt64 = 0

    mutating func forgetAll() {
        era &+= 1
        dropAll()
    }

    private mutating func dropAll() {
        wholeRowSchema = 0
        rows = [:]
        olderRows = [:]
        rowBytes = 0
        plans = [:]
        names = [:]
        needed = [:]
    }

    private mutating func forget(_ table: UInt32) {
        names[table] = nil
        rows = rows.filter { $0.key.table != table }
        olderRows = olderRows.filter { $0.key.table != table }
        rowBytes = rows.values.reduce(0) { $0 + $1.byteCount }
    }

    // MARK: Passing over changes

    /// True if the memory must see changes with rows of this schema (a fingerprint).
    func isConcerned(with schema: UInt64) -> Bool {
        isWatching && !(schema == wholeRowSchema && needed.isEmpty)
    }

    /// Updates the memory with a change and returns the row that the change lacks. Changes nothing if the result is
    /// `unknown`.
    ///
    /// - Parameters:
    ///   - isWaiting: true if some listener may receive the change, so that its old row may be needed.
    ///   - isNeeded: true if some listener needs values that the change omits.
    ///   - mayAsk: true if the log may be searched; if false, an unknown row counts as missing.
    ///   - isBroken: true if the log may lack changes of the table's rows.
    mutating func pass(
        _ change: borrowing Change, _ relation: Relation, isWaiting: Bool, isNeeded: Bool, mayAsk: Bool, isBroken: Bool
    ) throws(ByteError) -> Past {
        let isLacking = isNeeded ? try lacksValues(change) : false
        note(isNeeded: isLacking, by: change, relation.oid)
        wholeRowSchema = 0
        guard follows(relation.oid) else { return .untold }
        if isBroken {
            // The log may lack a change of the row, so nothing about it is remembered.
            if names[relation.oid] != nil { forget(relation.oid) }
            guard isLacking else { return .untold }
            found[.missing].add()
            return .missing
        }
        let plan = plan(change.relation, relation)
        if names[relation.oid] != plan.names {
            forget(relation.oid)
            names[relation.oid] = plan.names
        }
        guard let columns = plan.columns else {
            wholeRowSchema = change.relation
            return .untold
        }
        switch change.operation {
        case .truncate: dropRows(of: relation.oid)
        case .insert: try follow(change, plan, columns)
        case .update:
            // A client that sees the new row may not be allowed to know the key of the old one.
            let isGuarded = isWaiting && watched[relation.oid] != nil && change.oldImage == .key
            let isWanted = isGuarded || oldRowsWatched[relation.oid] != nil
            return try update(change, plan, columns, isNeeded: isLacking, wantsFormer: isWanted, mayAsk: mayAsk)
        case .delete:
            let isWanted = isLacking || isWaiting && watched[relation.oid] != nil
            return try take(change, plan, columns, isWanted: isWanted, mayAsk: mayAsk)
        case .message: break
        }
        return .untold
    }

    private func lacksValues(_ change: borrowing Change) throws(ByteError) -> Bool {
        switch change.operation {
        case .delete: return change.oldImage == .key
        case .update:
            guard change.oldImage != .full, let new = change.new else { return false }
            return try new.isPartial()
        case .insert, .truncate, .message: return false
        }
    }

    private mutating func update(
        _ change: borrowing Change, _ plan: Plan, _ columns: RowColumns, isNeeded: Bool, wantsFormer: Bool, mayAsk: Bool
    ) throws(ByteError) -> Past {
        var known = Known()
        if wantsFormer {
            let former = try self.former(of: change, plan, columns, mayAsk: mayAsk)
            if case .unknown = former { return .unknown }
            if case .row(let row) = former { known.former = row.former }
        }
        guard isNeeded else {
            try follow(change, plan, columns)
            return known.former == nil ? .untold : .row(known)
        }
        if mayAsk, let id = try formerID(of: change, columns) {
            let isWhole = try isWholeWith(find(id), change, plan)
            if !isWhole { return .unknown }
        }
        let whole = try note(change, plan, columns) ?? []
        if try whole.isPartialRow() {
            found[.missing].add()
            return known.former == nil ? .missing : .row(known)
        }
        found[.memory].add()
        known.whole = whole
        return .row(known)
    }

    /// Returns the row before an update that contains the old key or does not change the key.
    private func former(
        of change: borrowing Change, _ plan: Plan, _ columns: RowColumns, mayAsk: Bool
    ) throws(ByteError) -> Past {
        switch change.oldImage {
        case .full: break
        case .key: if let old = change.old { return try former(named: old, plan, columns, mayAsk: mayAsk) }
        case .none: if let new = change.new { return try former(named: new, plan, columns, mayAsk: mayAsk) }
        }
        return .untold
    }

    private func former(
        named old: borrowing Tuple, _ plan: Plan, _ columns: RowColumns, mayAsk: Bool
    ) throws(ByteError) -> Past {
        guard let id = try columns.id(of: old) else { return .untold }
        guard let row = find(id), try isSame(row, old, plan, columns), !(mayAsk && row.isPartial && !row.isFromLog)
        else {
            if mayAsk { return .unknown }
            found[.missing].add()
            return .missing
        }
        guard let known = try whole(row, old, plan) else { return .missing }
        return .row(Known(former: known))
    }

    /// Returns the remembered row in the schema of the change; nil if the log does not have it.
    private func whole(_ row: Row, _ old: borrowing Tuple, _ plan: Plan) throws(ByteError) -> [UInt8]? {
        guard let tuple = row.tuple, let relation = plans[row.relation]?.relation else {
            found[.missing].add()
            return nil
        }
        found[row.isFromLog ? .log : .memory].add()
        return try ComposedRow.compose(
            plan.relation,
            from: [
                ComposedRow.Source(tuple: old.bytes.copied(), relation: plan.relation, isKeyOnly: true),
                ComposedRow.Source(tuple: tuple, relation: relation),
            ])
    }

    /// Updates the memory after a change: the row is stored as the change leaves it, or removed.
    private mutating func follow(
        _ change: borrowing Change, _ plan: Plan, _ columns: RowColumns
    ) throws(ByteError) {
        if remembersRows(of: plan.relation.oid) {
            _ = try note(change, plan, columns)
        } else if !rows.isEmpty || !olderRows.isEmpty {
            if let old = change.old, let id = try columns.id(of: old) { _ = remove(id) }
            if let new = change.new {
                if let id = try columns.id(of: new) { _ = remove(id) } else { dropRows(of: plan.relation.oid) }
            }
        }
    }

    /// Returns the identity of the row that a change replaces or deletes.
    private func formerID(of change: borrowing Change, _ columns: RowColumns) throws(ByteError) -> RowID? {
        if change.oldImage == .key, let old = change.old { return try columns.id(of: old) }
        guard let new = change.new else { return nil }
        return try columns.id(of: new)
    }

    private func isWholeWith(
        _ former: Row?, _ change: borrowing Change, _ plan: Plan
    ) throws(ByteError) -> Bool {
        guard let former else { return false }
        if former.isFromLog { return true }
        let whole = try complete(change, plan, from: former)
        return try !whole.isPartialRow()
    }

    private mutating func plan(_ fingerprint: UInt64, _ relation: Relation) -> Plan {
        if let known = plans[fingerprint] { return known }
        // Remembered rows may need the schemas that are forgotten here, so the rows are dropped too.
        if plans.count >= Limits.maximumCachedRelations { dropAll() }
        let plan = Plan(relation)
        plans[fingerprint] = plan
        return plan
    }

    private mutating func dropRows(of table: UInt32) {
        let names = names[table]
        forget(table)
        self.names[table] = names
    }

    /// Stores and returns the row as the change leaves it.
    private mutating func note(
        _ change: borrowing Change, _ plan: Plan, _ columns: RowColumns
    ) throws(ByteError) -> [UInt8]? {
        guard let new = change.new else { return nil }
        var former: (id: RowID, row: Row)?
        if change.oldImage == .key, let old = change.old, let id = try columns.id(of: old) {
            if let row = remove(id) { former = (id, row) }
        }
        var tuple: [UInt8]?
        var wasAsked = false
        if try new.isPartial() {
            let current = try columns.id(of: new)
            let known = former?.row ?? current.flatMap { find($0) }
            tuple = try complete(change, plan, from: known)
            wasAsked = known.map { $0.isFromLog && !$0.isUnread } ?? false
        }
        let whole = tuple ?? new.bytes.copied()
        guard let id = try columns.id(of: whole.asTuple) else {
            // The change does not show which row it changed.
            dropRows(of: plan.relation.oid)
            return whole
        }
        if whole.count <= Limits.maximumRecalledRowBytes {
            // The log lacked some values when it was searched, so another search would not find them.
            let isPartial = tuple == nil ? false : try whole.isPartialRow()
            add(
                Row(
                    relation: change.relation, tuple: whole, isFromLog: isPartial && wasAsked, isPartial: isPartial),
                as: id)
        } else {
            _ = remove(id)
        }
        return whole
    }

    /// Returns the row after an update, with the values that it left unchanged.
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

    private mutating func take(
        _ change: borrowing Change, _ plan: Plan, _ columns: RowColumns, isWanted: Bool, mayAsk: Bool
    ) throws(ByteError) -> Past {
        guard change.oldImage == .key, let old = change.old, let id = try columns.id(of: old) else { return .untold }
        guard isWanted else {
            _ = remove(id)
            return .untold
        }
        guard let row = find(id), try isSame(row, old, plan, columns), !(mayAsk && row.isPartial && !row.isFromLog)
        else {
            if mayAsk { return .unknown }
            _ = remove(id)
            found[.missing].add()
            return .missing
        }
        _ = remove(id)
        return try whole(row, old, plan).map { .row(Known(whole: $0)) } ?? .missing
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
        assert(rowBytes >= 0, "no more is forgotten than was remembered")
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

    /// Stores the rows that the log returned. They are current, because the loop has delivered no change since the
    /// request.
    mutating func fill(_ request: RecallRequest, _ answers: [RecallAnswer]) {
        assert(request.rows.count == answers.count, "each row has its answer")
        // Room for schemas is made first: dropping them later would drop the rows stored here.
        if plans.count + answers.count > Limits.maximumCachedRelations { dropAll() }
        for (row, answer) in zip(request.rows, answers) where follows(row.id.table) {
            switch answer {
            case .version(let fingerprint, let relation, let tuple):
                _ = plan(fingerprint, relation)
                add(Row(relation: fingerprint, tuple: tuple, isFromLog: true), as: row.id)
            case .missing: add(Row(relation: row.relation, tuple: nil, isFromLog: true), as: row.id)
            case .unread: add(Row(relation: row.relation, tuple: nil, isFromLog: true, isUnread: true), as: row.id)
            case .postponed: break
            }
        }
    }

    /// Adds to the request those rows that the part's next changes need and the memory lacks. Returns false if the
    /// request must not grow any more.
    @_lifetime(part: copy part)
    mutating func collect(
        _ part: inout TransactionPart, into request: inout RecallRequest, _ relations: (UInt64) -> Relation?
    ) throws(ByteError) -> Bool {
        while request.rows.count < Limits.recallBatchRows, let change = try part.next() {
            guard change.relation != 0 else { continue }
            guard let relation = relations(change.relation) else { return false }
            guard follows(relation.oid) else { continue }
            let plan = plan(change.relation, relation)
            // If the table's rows are identified by other columns, or are truncated, the answers would not apply to
            // later changes.
            guard let columns = plan.columns, let known = names[relation.oid] else { continue }
            guard known == plan.names, change.operation != .truncate else { return false }
            try collect(change, columns, relation, into: &request)
        }
        return request.rows.count < Limits.recallBatchRows
    }

    private func collect(
        _ change: borrowing Change, _ columns: RowColumns, _ relation: Relation, into request: inout RecallRequest
    ) throws(ByteError) {
        let former = try formerID(of: change, columns)
        // Later changes of the same row will find it in the memory.
        let isFirst = former.map { request.touched.insert($0).inserted } ?? false
        if let new = change.new, let id = try columns.id(of: new) { request.touched.insert(id) }
        assert(former.map { $0.table == relation.oid } ?? true, "a row is of its own table")
        guard isFirst, let former, try isLacking(change, former) else { return }
        guard let key = change.oldImage == .key ? change.old : change.new else { return }
        request.relations[change.relation] = relation
        request.rows.append(RecallRequest.Row(id: former, relation: change.relation, key: key.bytes.copied()))
    }

    /// True if the hub must search the log for the row that a change identifies.
    private func isLacking(_ change: borrowing Change, _ former: RowID) throws(ByteError) -> Bool {
        let row = find(former)
        guard row == nil || row?.isPartial == true && row?.isFromLog == false else { return false }
        if change.operation == .update, change.oldImage != .full, oldRowsWatched[former.table] != nil { return true }
        // A client that sees the new row may not be allowed to know the key of the old one.
        if row == nil, change.operation == .update, change.oldImage == .key, watched[former.table] != nil {
            return true
        }
        guard change.operation == .delete || needed[former.table]?.isOfUpdates == true else { return false }
        return try lacksValues(change)
    }
}
