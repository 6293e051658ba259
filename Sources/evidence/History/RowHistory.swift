import Bytes
import Change

/// A row as the user named it: values in the order of the key's columns, or columns by name.
public struct RowName: Sendable, Hashable {
    public var operands: [String]

    public init(_ operands: [String]) { self.operands = operands }

    /// Returns columns and values if each operand is `column=value` with a column of the table; otherwise nil. A value
    /// of a key may contain an equals sign too.
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

/// Reason why a name fits no row of a table.
public enum RowNameError: Error, Sendable, Equatable {
    case unknownTable(TableName)
    /// The names of the key's columns; empty if the table has no key.
    case doesNotFit(TableName, key: [String], given: Int)
    /// No row can have the value, because it is not of the column's type.
    case impossible(TableName, column: String, value: String, expected: String)
    /// The column is masked. Naming rows by its values would let the user guess them.
    case masked(TableName, column: String)
}

/// Version of a row.
public struct RowVersion: Sendable {
    public struct Difference: Sendable {
        public var column: Int
        /// Value before the change; nil if the log does not have it.
        public var before: RowValue?
        /// Value after the change.
        public var after: RowValue
    }

    public var change: RecordedChange
    /// True if the row was read from the database, and no change in the log shows it. `change` then looks like an
    /// insert, and its offset is that of the next change.
    public var wasRead = false
    /// Columns that differ from the version before. Nil for an update whose old values are in neither the log nor the
    /// versions before, and for a row that was read and has no version before.
    public var differences: [Difference]?
    /// Key that the row had before the change, if the change gave it another. The history follows both keys.
    public var formerKey: [RowValue]?
}

public enum RowHistoryItem: Sendable {
    case version(RowVersion)
    case gap(RecordedGap)
}

/// All versions of one row, in the order of the log.
///
/// The search covers every table that once had the name, under all its names, so that a rename loses nothing. After a
/// change that gives the row another key, the search follows the new key too. The search skips whole segments that have
/// neither key, and reads only the keys of other rows.
public struct RowHistory: ~Copyable {
    /// Known values of a row after its last version, by column name: a schema may change in between.
    private typealias State = [String: RowValue]

    /// Key of a row, with its table.
    private struct Place: Hashable {
        var table: TableFamilies.Identity
        var key: [RowValue]
    }

    private var reader: HistoryReader
    private let name: RowName
    private let families: TableFamilies
    private let tables: Set<TableFamilies.Identity>
    /// Keys of the row, each with its last known values. The values are empty if the row was deleted, or if they are
    /// unknown.
    private var states: [Place: State] = [:]
    /// Keys of rows that changed since the last gap. A reader of a table sees a transaction slightly later than its
    /// commit, so a reading of these rows may be older than the change.
    private var changed: Set<Place> = []
    /// LSN of the last truncate of each table. A table cannot be read during its truncate.
    private var emptied: [TableFamilies.Identity: LSN] = [:]
    private var keysByRelation: [UInt64: [RowValue]?] = [:]

    /// Opens the log to read the versions of a row.
    ///
    /// - Parameter noting: called with each entry's offset; an error that it throws ends the reading.
    public init(
        _ log: HistoryLog, _ table: TableName, _ name: RowName, _ query: HistoryQuery,
        noting: ((UInt64) throws -> Void)? = nil
    ) throws {
        // The window must be found first: if retention has deleted it, the table must not be reported as unknown.
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

    /// Returns the error for a value that no row had, if no schema of the table that the name fits allows the value.
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

    /// Returns the key in the order of its columns; nil if the name does not consist of exactly the key.
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

    /// Returns the hashes that segments are searched for: the row's hash under each schema of the table, and the hash
    /// of changes without a known key. Nil if some schema has no such key: then the whole table is read.
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

    // MARK: Changes of the row

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

    /// True if a forgotten change may concern the row. Only part of its key's hash is left. If the row is not named by
    /// its key, any forgotten change may concern it.
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

    /// True if either image has the named values. Used for a table without a key, or a name that is not the key.
    private func concernsByColumns(_ change: RecordedChange, _ relation: RecordedRelation) -> Bool {
        guard let named = name.named(in: relation.relation) else { return false }
        let isNew = named.allSatisfy { change.value(of: $0.column)?.plainText == $0.value }
        return isNew || named.allSatisfy { change.oldValue(of: $0.column)?.plainText == $0.value }
    }

    // MARK: Versions of the row

    private mutating func version(_ change: RecordedChange, _ relation: RecordedRelation) -> RowVersion {
        let table = families.identity(of: relation, in: change.epoch)
        if change.operation == .truncate {
            for place in states.keys where place.table == table { states[place] = [:] }
            return RowVersion(change: reader.withShownActor(change))
        }
        if change.forgotten != nil {
            // The row's values after a forgotten change are unknown.
            for place in states.keys where place.table == table { states[place] = [:] }
            return RowVersion(change: reader.withShownActor(change))
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
        var shown = change.masking(masks)
        shown.actor = reader.shown(change.actor)
        return RowVersion(
            change: shown, differences: differences.map { $0.map { $0.masked(masks) } }, formerKey: shown.oldKey)
    }

    /// Returns the version that a reading shows; nil if the reading adds nothing to the known values.
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
    /// Returns the hash of a row from the values of its key alone.
    func rowKey(fromKey key: [RowValue]) -> UInt64? {
        var row = [RowValue](repeating: .null, count: relation.columns.count)
        for (column, value) in zip(keyColumns, key) { row[column] = value }
        return rowKey(row)
    }
}
