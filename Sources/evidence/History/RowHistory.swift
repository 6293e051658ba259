import Bytes
import Change

/// A row as it was asked for: values in the order of the key's columns, or columns by name.
public struct RowName: Sendable, Hashable {
    public var operands: [String]

    public init(_ operands: [String]) { self.operands = operands }

    /// `column=value` where the table has such a column; a value of a key may have an equals sign too.
    func named(in relation: Relation) -> [(column: Int, value: String)]? {
        let pairs = operands.compactMap { operand -> (column: Int, value: String)? in
            guard let condition = RowCondition(operand), case .equals(let value) = condition.test,
                let column = relation.column(named: condition.column)
            else { return nil }
            return (column, ValueSpelling.normal(value, type: relation.columns[column].typeOID))
        }
        return pairs.count == operands.count ? pairs : nil
    }
}

/// Why a name fits no row of a table.
public enum RowNameError: Error, Sendable, Equatable {
    case unknownTable(TableName)
    /// The names of the key's columns; empty if the table has no key.
    case doesNotFit(TableName, key: [String], given: Int)
    /// A value that no row can have: it is none of the column's type.
    case impossible(TableName, column: String, value: String, expected: String)
    /// Who could name a row by a value that is hidden could find the value out.
    case masked(TableName, column: String)
}

/// One version of a row.
public struct RowVersion: Sendable {
    public struct Difference: Sendable {
        public var column: Int
        /// Nil when the log does not tell.
        public var before: RowValue?
        public var after: RowValue
    }

    public var change: RecordedChange
    /// Somebody read the row from the database, and the log has no change that tells what it was: `change` is as if it had
    /// been inserted, and its offset that of the next change.
    public var wasRead = false
    /// What the change made different from the version before. Nil for an update of which neither the log nor the
    /// versions before tell that, and for a row that was read where there is none.
    public var differences: [Difference]?
    /// The row had another key until then; it is followed under both.
    public var formerKey: [RowValue]?
}

public enum RowHistoryItem: Sendable {
    case version(RowVersion)
    case gap(RecordedGap)
}

/// A row's name in; all its versions, in order.
///
/// The table is every one that was once called so, under whatever name it was then: a rename loses nothing. When a change
/// gives the row another key, it is followed under the new key too. Whole segments that have neither are not read, and of
/// the others no more of other rows than their keys.
public struct RowHistory: ~Copyable {
    /// What is known of a row after its last version, by the columns' names: a schema may change in between.
    private typealias State = [String: RowValue]

    /// A key in one table.
    private struct Place: Hashable {
        var table: TableFamilies.Identity
        var key: [RowValue]
    }

    private var reader: HistoryReader
    private let name: RowName
    private let families: TableFamilies
    private let tables: Set<TableFamilies.Identity>
    /// Keys that the row is known by, each with its last known state; empty when it is gone.
    private var states: [Place: State] = [:]
    /// Those that changed since the last gap. Who reads a table sees a transaction a moment after it is committed, so that what
    /// is read of these may be older.
    private var changed: Set<Place> = []
    /// Where each table was truncated last: nobody reads it meanwhile.
    private var emptied: [TableFamilies.Identity: LSN] = [:]
    private var keysByRelation: [UInt64: [RowValue]?] = [:]

    /// - Parameter noting: told of each entry's offset; what it throws ends the reading.
    public init(
        _ log: HistoryLog, _ table: TableName, _ name: RowName, _ query: HistoryQuery,
        noting: ((UInt64) throws -> Void)? = nil
    ) throws {
        // First: what retention has deleted is no reason to say that there never was such a table.
        let window = try log.window(from: query.from, to: query.to)
        let families = try TableFamilies(log, withKept: true)
        let tables = families.tables(called: table)
        let relations = families.schemas.filter { tables.contains($0.identity) }.map(\.relation)
        guard let newest = relations.last else { throw RowNameError.unknownTable(table) }
        guard !name.operands.isEmpty, relations.contains(where: { RowHistory.fits(name, $0) }) else {
            throw RowNameError.doesNotFit(
                table, key: newest.keyColumns.map { newest.relation.columns[$0].name }, given: name.operands.count)
        }
        for relation in relations {
            let names = families.names(of: relation)
            let columns = name.named(in: relation.relation)?.map(\.column) ?? relation.keyColumns
            for column in columns.map({ relation.relation.columns[$0].name }) where log.masking.masks(column, of: names)
            {
                throw RowNameError.masked(table, column: column)
            }
        }
        if let flaw = Self.flaw(of: name, relations.map(\.relation), in: table) { throw flaw }
        var query = query
        query.tables = [table]
        query.alsoWanted = Set(relations.map(\.fingerprint))
        query.includesKept = true
        let hashes = Self.hashes(name, relations)
        query.rows = hashes.map { Set($0) }
        let tableKeys = Set(relations.map(\.tableKey))
        var reader = try HistoryReader(
            log, query, window: window,
            matching: (hashes ?? Array(tableKeys)) + tableKeys.map { RowKey.kept(table: $0) })
        reader.noting = noting
        self.reader = reader
        self.name = name
        self.families = families
        self.tables = tables
    }

    private static func fits(_ name: RowName, _ relation: RecordedRelation) -> Bool {
        name.named(in: relation.relation) != nil || name.operands.count == relation.keyColumns.count
    }

    /// A value that no row had under any schema of the table that the name fits.
    private static func flaw(of name: RowName, _ relations: [Relation], in table: TableName) -> RowNameError? {
        var flaw: RowNameError?
        for relation in relations {
            let named = name.named(in: relation)
            let isKey = name.operands.count == relation.keyColumns.count
            guard named != nil || isKey else { continue }
            let values = named ?? zip(relation.keyColumns, name.operands).map { (column: $0, value: $1) }
            let wrong = values.lazy.compactMap { column, value -> RowNameError? in
                ValueSpelling.expected(value, type: relation.columns[column].typeOID).map {
                    .impossible(table, column: relation.columns[column].name, value: value, expected: $0)
                }
            }
            guard let first = wrong.first else { return nil }
            flaw = first
        }
        return flaw
    }

    /// The key in the order of its columns, if the name tells all of it and nothing else.
    private static func key(_ name: RowName, of relation: RecordedRelation) -> [RowValue]? {
        let columns = relation.keyColumns
        guard !columns.isEmpty, name.operands.count == columns.count else { return nil }
        if let named = name.named(in: relation.relation), Set(named.map(\.column)) == Set(columns) {
            return columns.map { column in
                .text(Array((named.first { $0.column == column }?.value ?? "").utf8))
            }
        }
        if name.named(in: relation.relation) != nil { return nil }
        return zip(columns, name.operands).map { column, text in
            .text(Array(ValueSpelling.normal(text, type: relation.relation.columns[column].typeOID).utf8))
        }
    }

    /// By which segments are passed over: the row's hash under each schema the table had, and that of changes which could
    /// not be told apart. Nil if some schema has no such key: then all of the table is read.
    private static func hashes(_ name: RowName, _ relations: [RecordedRelation]) -> [UInt64]? {
        var hashes: Set<UInt64> = []
        for relation in relations {
            guard let key = key(name, of: relation), let hash = relation.rowKey(fromKey: key) else {
                return nil
            }
            hashes.insert(hash)
            hashes.insert(relation.unkeyed)
        }
        return Array(hashes)
    }

    public mutating func next() throws -> RowHistoryItem? {
        while let item = try reader.nextUnmasked() {
            switch item {
            case .gap(let gap):
                changed = []
                return .gap(gap)
            case .presence, .mark: continue
            case .change(let change):
                if let relation = change.relation, concerns(change, relation) {
                    return .version(version(change, relation))
                }
            case .kept(let row):
                if let relation = row.relation, concerns(row, relation), let version = reading(row, relation) {
                    return .version(version)
                }
            }
        }
        return nil
    }

    // MARK: Which changes concern it

    private mutating func concerns(_ change: RecordedChange, _ relation: RecordedRelation) -> Bool {
        let table = families.identity(of: relation, in: change.epoch)
        guard tables.contains(table) else { return false }
        if let forgotten = change.forgotten { return concerns(forgotten, table, relation) }
        if change.operation == .truncate {
            emptied[table] = change.transaction.commitLSN
            return states.contains { $0.key.table == table && !$0.value.isEmpty }
        }
        guard let wanted = wantedKey(relation) else { return concernsByColumns(change, relation) }
        return [change.key.map(\.value), change.oldKey].compactMap { $0 }.contains { key in
            key == wanted || states[Place(table: table, key: key)] != nil
        }
    }

    /// Of what was forgotten only a part of its key's hash is left; where the row is not named by its key, not even that tells.
    private mutating func concerns(
        _ forgotten: ForgottenChange, _ table: TableFamilies.Identity, _ relation: RecordedRelation
    ) -> Bool {
        guard let wanted = wantedKey(relation) else { return true }
        let keys = [wanted] + states.keys.filter { $0.table == table }.map(\.key)
        return keys.contains { relation.rowKey(fromKey: $0).map(forgotten.fits) ?? true }
    }

    private mutating func wantedKey(_ relation: RecordedRelation) -> [RowValue]? {
        if let known = keysByRelation[relation.fingerprint] { return known }
        let key = Self.key(name, of: relation)
        keysByRelation[relation.fingerprint] = .some(key)
        return key
    }

    /// A table without a key, or a name that is not the key: either image must have the values.
    private func concernsByColumns(_ change: RecordedChange, _ relation: RecordedRelation) -> Bool {
        guard let named = name.named(in: relation.relation) else { return false }
        let isNew = named.allSatisfy { change.value(of: $0.column)?.plainText == $0.value }
        return isNew || named.allSatisfy { change.oldValue(of: $0.column)?.plainText == $0.value }
    }

    // MARK: What a change did to it

    private mutating func version(_ change: RecordedChange, _ relation: RecordedRelation) -> RowVersion {
        let table = families.identity(of: relation, in: change.epoch)
        if change.operation == .truncate {
            for place in states.keys where place.table == table { states[place] = [:] }
            return RowVersion(change: change)
        }
        if change.forgotten != nil {
            // What the row was after it nobody knows.
            for place in states.keys where place.table == table { states[place] = [:] }
            return RowVersion(change: change)
        }
        let isKeyed = (wantedKey(relation) ?? nil) != nil
        // Rows of a table without a key cannot be told apart, so each of its changes stands for itself.
        let place = Place(table: table, key: isKeyed ? change.key.map(\.value) : [])
        let former = change.oldKey.map { Place(table: table, key: $0) }
        let before = isKeyed ? states[former ?? place] : nil
        let differences = differences(change, relation, before)
        if isKeyed { remember(change, relation, place, former, before) }
        changed.formUnion([place, former].compactMap(\.self))
        let masks = reader.masks(of: relation)
        let shown = change.masking(masks)
        return RowVersion(
            change: shown, differences: differences.map { $0.map { $0.masked(masks) } }, formerKey: shown.oldKey)
    }

    /// Nil where it says no more than is known.
    private mutating func reading(_ row: RecordedChange, _ relation: RecordedRelation) -> RowVersion? {
        let table = families.identity(of: relation, in: row.epoch)
        let place = Place(table: table, key: row.key.map(\.value))
        guard !changed.contains(place), row.transaction.commitLSN > emptied[table] ?? .zero else { return nil }
        let isKeyed = (wantedKey(relation) ?? nil) != nil
        let known = isKeyed ? states[place].flatMap { $0.isEmpty ? nil : $0 } : nil
        let differences = known.map { known in
            row.new.indices.compactMap { column -> RowVersion.Difference? in
                guard row.new[column].isKnown, let before = known[relation.relation.columns[column].name],
                    before.isKnown, before != row.new[column]
                else { return nil }
                return RowVersion.Difference(column: column, before: before, after: row.new[column])
            }
        }
        if let differences, differences.isEmpty { return nil }
        if isKeyed { remember(row, relation, place, nil, nil) }
        let masks = reader.masks(of: relation)
        return RowVersion(
            change: row.masking(masks), wasRead: true, differences: differences.map { $0.map { $0.masked(masks) } })
    }

    private func differences(
        _ change: RecordedChange, _ relation: RecordedRelation, _ state: State?
    ) -> [RowVersion.Difference]? {
        guard change.operation == .update, change.forgotten == nil else { return [] }
        if state == nil, change.oldImage != .full { return nil }
        return change.new.indices.compactMap { column in
            guard let after = change.value(of: column) else { return nil }
            let before = change.oldValue(of: column) ?? state?[relation.relation.columns[column].name]
            return before == after ? nil : RowVersion.Difference(column: column, before: before, after: after)
        }
    }

    private mutating func remember(
        _ change: RecordedChange, _ relation: RecordedRelation, _ place: Place, _ former: Place?, _ before: State?
    ) {
        if let former {
            states[former] = [:]
            if let hash = relation.rowKey(fromKey: place.key) { reader.alsoMatch(hash) }
        }
        guard change.operation != .delete else {
            states[place] = [:]
            return
        }
        var state = change.operation == .insert ? [:] : before ?? [:]
        for column in change.new.indices {
            if let value = change.value(of: column) { state[relation.relation.columns[column].name] = value }
        }
        states[place] = state
    }
}

extension RowVersion.Difference {
    fileprivate func masked(_ masks: MaskedRelation) -> Self {
        Self(column: column, before: before.map { masks.shown($0, at: column) }, after: masks.shown(after, at: column))
    }
}

extension RecordedRelation {
    /// The hash of a row by the values of its key alone.
    func rowKey(fromKey key: [RowValue]) -> UInt64? {
        var row = [RowValue](repeating: .null, count: relation.columns.count)
        for (column, value) in zip(keyColumns, key) { row[column] = value }
        return rowKey(row)
    }
}
