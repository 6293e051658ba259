import Bytes
import Change

/// Rows of one table at a position in the log. Callers first pass the changes before the position, then those after it.
///
/// Rows are kept in the log's encoding. Nearly all changes are applied directly from this encoding (`take(stored:)`),
/// without copies of single values.
struct TableRows {
    struct Row {
        var offset: UInt64
        var witness: RowAsOf.Witness
        var relation: RecordedRelation
        var values: [RowValue]
    }

    private var rows = CompactRows()
    /// Schemas of the rows. Each row has the index of its schema.
    private var relations: [RecordedRelation] = []
    private var numbers: [UInt64: UInt32] = [:]
    var name: TableName
    /// Hashes of the keys of rows whose last change was erased from the log.
    private var forgotten: Set<ForgottenMark> = []
    /// True if the keys of deleted rows, and old keys that a row lost, are recorded. They are needed if rows read from
    /// the database are added, because such a reading may still contain these rows.
    private let keepsTrack: Bool
    private var settledMarks: Set<ForgottenMark> = []
    private var gaps = 0
    /// Number of gaps before the last truncate; nil if there was no truncate. After a truncate without a gap, the log
    /// has all rows of the table.
    private var emptied: Int?
    /// True if a reading from the database has all rows of the table, and there is no gap between it and the position.
    private var wasRead = false
    /// Numbers of the parts that were added, and the last part's number if known, for each reading from the database.
    private var parts: [UInt64: (numbers: Set<UInt32>, last: UInt32?)] = [:]

    init(_ name: TableName, keepsTrack: Bool) {
        self.name = name
        self.keepsTrack = keepsTrack
    }

    /// True if these are all rows of the table; see `isWholeIfPublished` for a condition.
    var isWhole: Bool { emptied != nil || wasRead }
    /// True if the rows are complete only on a condition: every change of the table reached the log, because the table
    /// was always in the publication.
    var isWholeIfPublished: Bool { emptied == nil && wasRead }
    var forgottenCount: Int { forgotten.count }
    var count: Int { rows.rowCount }

    /// True if the number of rows is within the limit, and the number of recorded keys without a row within four times
    /// the limit.
    func isWithin(_ most: Int) -> Bool { rows.rowCount <= most && rows.noteCount <= 4 * most }

    /// Calls `body` for each row, in the order of the rows' log offsets.
    func forEach(_ body: (Row) throws -> Void) throws {
        for number in rows.ordered {
            guard let row = try row(Int(number)) else { continue }
            try body(row)
        }
    }

    private func row(_ number: Int) throws(ByteError) -> Row? {
        guard let facts = rows.facts(of: number) else { return nil }
        return Row(
            offset: facts.offset, witness: facts.witness, relation: relations[Int(facts.relation)],
            values: try RowValue.row(rows.image(of: number)))
    }

    private mutating func number(of relation: RecordedRelation) -> UInt32 {
        if let known = numbers[relation.fingerprint] { return known }
        let number = UInt32(relations.count)
        numbers[relation.fingerprint] = number
        relations.append(relation)
        return number
    }

    private mutating func facts(
        _ offset: UInt64, _ relation: RecordedRelation, _ witness: RowAsOf.Witness = .change, order: Int = 0
    ) -> CompactRows.Facts {
        CompactRows.Facts(
            offset: offset, order: UInt32(truncatingIfNeeded: order), gaps: UInt32(gaps),
            relation: number(of: relation),
            witness: witness)
    }

    // MARK: Before the place

    /// Applies a change directly from its encoding in the log. Returns false if it cannot, and the caller must use
    /// `take(_:_:)`: values are missing or were erased, or the row gets another key.
    mutating func take(
        stored change: borrowing Change, at offset: UInt64, _ relation: RecordedRelation, _ keys: inout StoredKeyPair
    ) throws(ByteError) -> Bool {
        guard forgotten.isEmpty, !change.isForgotten, try keys.read(change, relation) else { return false }
        switch change.operation {
        case .insert, .update:
            guard let new = change.new else { return false }
            rows.set(keys.key, new.bytes, facts(offset, relation))
        case .delete:
            if let number = rows.find(keys.key) { rows.removeRow(number) }
            if keepsTrack { rows.note(gone: keys.key, gaps: gaps) }
        case .truncate, .message: return false
        }
        return true
    }

    /// Applies a change before the position, in the order of the log.
    mutating func take(_ change: RecordedChange, _ relation: RecordedRelation) throws(ByteError) {
        if let left = change.forgotten { return try forget(left, change.operation, relation) }
        let key = change.key.map(\.value)
        if !forgotten.isEmpty, let hash = relation.rowKey(fromKey: key) {
            forgotten = forgotten.filter { !$0.fits(hash) }
        }
        switch change.operation {
        case .truncate: empty()
        case .insert: set(key, change.new, facts(change.offset, relation))
        case .update:
            let former = try removeRow(change.oldKey ?? key)
            if let oldKey = change.oldKey { note(gone: oldKey) }
            let values = change.new.indices.map { column in
                change.value(of: column) ?? former?.value(relation.relation.columns[column].name) ?? .unchanged
            }
            set(key, values, facts(change.offset, relation))
        case .delete:
            _ = try removeRow(key)
            note(gone: key)
        case .message: break
        }
    }

    private mutating func set(_ key: [RowValue], _ values: [RowValue], _ facts: CompactRows.Facts) {
        rows.set(RowValue.key(key).rawBytes, RowValue.image(values).rawBytes, facts)
    }

    private mutating func removeRow(_ key: [RowValue]) throws(ByteError) -> Row? {
        guard let number = rows.find(RowValue.key(key).rawBytes) else { return nil }
        let row = try row(number)
        rows.removeRow(number)
        return row
    }

    /// Records that the row of this key was deleted or got another key.
    private mutating func note(gone key: [RowValue]) {
        if keepsTrack { rows.note(gone: RowValue.key(key).rawBytes, gaps: gaps) }
    }

    /// Removes all rows, for a truncate.
    private mutating func empty() {
        rows.removeAll()
        forgotten = []
        (emptied, wasRead) = (gaps, false)
        parts = [:]
    }

    /// Removes every row whose key may be the key of the erased change.
    private mutating func forget(
        _ left: ForgottenChange, _ operation: Operation, _ relation: RecordedRelation
    ) throws(ByteError) {
        var removed: [Int] = []
        try rows.forEachRow { (number) throws(ByteError) in
            let key = try RowValue.values(ofKey: rows.key(of: number))
            if relation.rowKey(fromKey: key).map({ left.fits($0) }) ?? false { removed.append(number) }
        }
        for number in removed { rows.removeRow(number) }
        // Compares keys only, because the day of an erasure does not distinguish rows.
        for mark in [left.old, left.new].compactMap({ $0 }) { forgotten = forgotten.filter { $0.key != mark.key } }
        if operation != .delete, let mark = left.new { forgotten.insert(mark) }
        if keepsTrack { settledMarks.formUnion([left.old, left.new].compactMap { $0 }) }
    }

    /// Records a gap in the log, in which any row may have changed.
    mutating func noteGap() {
        gaps += 1
        rows.forgetGone()
        wasRead = false
        parts = [:]
    }

    // MARK: After the place

    /// True if a change after the position adds nothing, because an earlier change of the same row after the position
    /// was already applied. False if the encoding in the log does not show that.
    func knows(
        later change: borrowing Change, _ relation: RecordedRelation, _ keys: inout StoredKeyPair
    ) throws(ByteError) -> Bool {
        guard !change.isForgotten, try keys.read(change, relation) else { return false }
        return rows.find(keys.key).map { rows.isSettled($0) } ?? false
    }

    /// Applies a change after the position. The first such change of a row shows the row as it was before the change.
    mutating func take(later change: RecordedChange, _ relation: RecordedRelation) {
        if let left = change.forgotten {
            settledMarks.formUnion([left.old, left.new].compactMap { $0 })
            return
        }
        guard change.operation != .message else { return }
        let key = change.key.map(\.value)
        let found = change.oldKey ?? key
        defer { if change.oldKey != nil { settle(key) } }
        guard settle(found), !hasRow(found), change.operation != .insert else { return }
        let values = relation.relation.columns.indices.map { column in
            change.oldValue(of: column) ?? relation.keyColumns.firstIndex(of: column).map { found[$0] } ?? .unchanged
        }
        set(found, values, facts(change.offset, relation, .later))
    }

    @discardableResult
    private mutating func settle(_ key: [RowValue]) -> Bool { rows.note(settled: RowValue.key(key).rawBytes) }

    private func hasRow(_ key: [RowValue]) -> Bool {
        rows.find(RowValue.key(key).rawBytes).map { rows.facts(of: $0) != nil } ?? false
    }

    // MARK: Readings from the database

    /// Adds the rows of a part that was read from the database, except those for which a change is known.
    mutating func take(_ part: KeptPart) throws {
        // After a truncate, every row comes from a change.
        guard emptied != gaps else { return }
        for (order, row) in part.note.rows.enumerated() {
            if row.isForgotten {
                if let mark = ForgottenMark(Tuple(row.image.rawBytes)) { forgotten.insert(mark) }
                continue
            }
            let values = try RowValue.row(row.image)
            guard values.count == part.relation.relation.columns.count else {
                throw ByteError(expected: "a row as wide as its table", offset: 0)
            }
            let key = part.relation.keyColumns.map { values[$0] }
            guard isUnheardOf(key, part.relation) else { continue }
            let facts = facts(part.offset, part.relation, .kept, order: order)
            rows.set(RowValue.key(key).rawBytes, row.image.rawBytes, facts)
        }
        noteWhole(part.note)
    }

    /// True if no change since the last gap concerned the row with this key, so that a reading may show it.
    private func isUnheardOf(_ key: [RowValue], _ relation: RecordedRelation) -> Bool {
        if let number = rows.find(RowValue.key(key).rawBytes) {
            if let facts = rows.facts(of: number), Int(facts.gaps) == gaps { return false }
            guard !rows.isGone(number, gaps: gaps), !rows.isSettled(number) else { return false }
        }
        guard !forgotten.isEmpty || !settledMarks.isEmpty, let hash = relation.rowKey(fromKey: key) else { return true }
        return !forgotten.contains { $0.fits(hash) } && !settledMarks.contains { $0.fits(hash) }
    }

    /// Records a part of a reading; with all its parts, the reading has all rows of the table.
    private mutating func noteWhole(_ note: KeptRows) {
        var known = parts[note.reading] ?? ([], nil)
        known.numbers.insert(note.part)
        if note.isLast { known.last = note.part }
        parts[note.reading] = known
        if let last = known.last, known.numbers.count == Int(last) + 1 { wasRead = true }
    }
}

extension TableRows.Row {
    /// Value of the column with this name; nil if the row's schema has none.
    fileprivate func value(_ name: String) -> RowValue? { relation.relation.column(named: name).map { values[$0] } }
}

/// Key of a stored change's row, written to memory that is used again for each change.
struct StoredKeyPair: ~Copyable {
    private var new = ByteWriter(capacity: 256)
    private var old = ByteWriter(capacity: 256)
    private var isNew = true

    /// Key that `read` wrote, in the form of `RowValue.key`.
    var key: RawSpan {
        @_lifetime(borrow self)
        get { isNew ? new.bytes : old.bytes }
    }

    /// Writes the key of the change's row to `key`. Returns false if the stored change alone does not show the row:
    /// values are missing, or the row got another key.
    mutating func read(_ change: borrowing Change, _ relation: RecordedRelation) throws(ByteError) -> Bool {
        switch change.operation {
        case .insert, .update:
            guard let tuple = change.new, try Self.read(tuple, relation, &new, demandsAll: true) else { return false }
            isNew = true
            guard change.operation == .update, let before = change.old else { return true }
            guard
                change.oldImage == .full || relation.keyColumns.allSatisfy({ relation.relation.columns[$0].isIdentity })
            else { return false }
            return try Self.read(before, relation, &old, demandsAll: false) && old.bytes.equals(new.bytes)
        case .delete:
            guard let before = change.old,
                change.oldImage == .full || relation.keyColumns.allSatisfy({ relation.relation.columns[$0].isIdentity })
            else { return false }
            isNew = false
            return try Self.read(before, relation, &old, demandsAll: false)
        case .truncate, .message: return false
        }
    }

    /// Copies the key's values from a row image. Returns false if one of them is unknown; with `demandsAll`, also if
    /// any other value is.
    private static func read(
        _ tuple: borrowing Tuple, _ relation: RecordedRelation, _ key: inout ByteWriter, demandsAll: Bool
    ) throws(ByteError) -> Bool {
        key.removeAll()
        var columns = tuple.columns()
        guard columns.remaining == relation.relation.columns.count else {
            throw ByteError(expected: "a row as wide as its table", offset: 0)
        }
        var (index, wanted, isKnown) = (0, 0, true)
        while true {
            let start = columns.offset
            guard let value = try columns.next() else { break }
            let isKey = wanted < relation.keyColumns.count && relation.keyColumns[wanted] == index
            if case .unchanged = copy value, isKey || demandsAll { isKnown = false }
            if isKey {
                key.append(tuple.bytes.extracting(start..<columns.offset))
                wanted += 1
            }
            index += 1
        }
        return isKnown
    }
}

extension RowValue {
    /// Returns a key in the encoding of the values in a row image, without their count.
    fileprivate static func key(_ values: [RowValue]) -> [UInt8] {
        var writer = ByteWriter(capacity: 64)
        for value in values { value.append(to: &writer) }
        return writer.copied()
    }

    fileprivate static func values(ofKey key: [UInt8]) throws(ByteError) -> [RowValue] {
        let image = [0xff, 0xff] + key
        var columns = TupleColumns(image.rawBytes)
        var values: [RowValue] = []
        while columns.offset < image.count, let value = try columns.next() { values.append(RowValue(value)) }
        return values
    }

    fileprivate static func image(_ values: [RowValue]) -> [UInt8] {
        var writer = ByteWriter(capacity: 256)
        writer.append(big: UInt16(truncatingIfNeeded: values.count))
        for value in values { value.append(to: &writer) }
        return writer.copied()
    }
}
