import Bytes
import Change

/// Rows of one table at a place in the log. Callers pass the changes before the place first, then the changes after it.
struct TableRows {
    struct Row {
        var offset: UInt64
        /// Order among the rows with the same offset.
        var order = 0
        var witness = RowAsOf.Witness.change
        var relation: RecordedRelation
        var values: [RowValue]
        /// Number of gaps before this version. A later gap may have lost changes of the row.
        var gaps: Int
    }

    private(set) var rows: [[RowValue]: Row] = [:]
    var name: TableName
    /// Partial keys of rows whose last change was forgotten.
    private var forgotten: Set<ForgottenMark> = []
    /// Keys of rows that were deleted or got another key. Kept only if a reading may show such a row.
    private var gone: Set<[RowValue]> = []
    /// True if the log has readings of the table, which may show rows in `gone`.
    private let keepsTrack: Bool
    /// Keys of rows whose first change after the place was seen.
    private var settled: Set<[RowValue]> = []
    private var settledMarks: Set<ForgottenMark> = []
    private var gaps = 0
    /// Number of gaps before the last truncate; nil without one. From a truncate on, the log has all rows of the table.
    private var emptied: Int?
    /// True if a reading has all rows of the table, and nothing was lost between the reading and the place.
    private var wasRead = false
    /// Parts seen so far, by reading.
    private var parts: [UInt64: (numbers: Set<UInt32>, last: UInt32?)] = [:]

    init(_ name: TableName, keepsTrack: Bool) {
        self.name = name
        self.keepsTrack = keepsTrack
    }

    var isWhole: Bool { emptied != nil || wasRead }
    /// True if the rows are complete only on the condition that every change reached the log, which the publication
    /// decides.
    var isWholeIfPublished: Bool { emptied == nil && wasRead }
    var forgottenCount: Int { forgotten.count }

    /// True if the rows fit the limit. Keys of absent rows and of settled ones are limited to four times as many.
    func isWithin(_ most: Int) -> Bool { rows.count <= most && gone.count + settled.count <= 4 * most }

    // MARK: Before the place

    mutating func take(_ change: RecordedChange, _ relation: RecordedRelation) {
        if let left = change.forgotten { return forget(left, change.operation, relation) }
        let key = change.key.map(\.value)
        if !forgotten.isEmpty, let hash = relation.rowKey(fromKey: key) {
            forgotten = forgotten.filter { !$0.fits(hash) }
        }
        switch change.operation {
        case .truncate: empty()
        case .insert: set(key, change, relation, change.new)
        case .update:
            let former = rows.removeValue(forKey: change.oldKey ?? key)
            if let oldKey = change.oldKey { note(gone: oldKey) }
            let values = change.new.indices.map { column in
                change.value(of: column) ?? former?.value(relation.relation.columns[column].name) ?? .unchanged
            }
            set(key, change, relation, values)
        case .delete:
            rows[key] = nil
            note(gone: key)
        case .message: break
        }
    }

    private mutating func set(
        _ key: [RowValue], _ change: RecordedChange, _ relation: RecordedRelation, _ values: [RowValue]
    ) {
        rows[key] = Row(offset: change.offset, relation: relation, values: values, gaps: gaps)
        gone.remove(key)
    }

    private mutating func note(gone key: [RowValue]) { if keepsTrack { gone.insert(key) } }

    private mutating func empty() {
        rows = [:]
        forgotten = []
        gone = []
        (emptied, wasRead) = (gaps, false)
        parts = [:]
    }

    /// Removes every row whose key may be that of the forgotten change.
    private mutating func forget(_ left: ForgottenChange, _ operation: Operation, _ relation: RecordedRelation) {
        rows = rows.filter { key, _ in relation.rowKey(fromKey: key).map { !left.fits($0) } ?? true }
        // Compares keys only: the day does not distinguish rows.
        for mark in [left.old, left.new].compactMap({ $0 }) { forgotten = forgotten.filter { $0.key != mark.key } }
        if operation != .delete, let mark = left.new { forgotten.insert(mark) }
        if keepsTrack { settledMarks.formUnion([left.old, left.new].compactMap { $0 }) }
    }

    /// Records that any row may have changed in a gap.
    mutating func noteGap() {
        gaps += 1
        gone = []
        wasRead = false
        parts = [:]
    }

    // MARK: After the place

    /// Applies a change after the place. The first change of a row shows the values that the row had at the place.
    mutating func take(later change: RecordedChange, _ relation: RecordedRelation) {
        if let left = change.forgotten {
            settledMarks.formUnion([left.old, left.new].compactMap { $0 })
            return
        }
        guard change.operation != .message else { return }
        let key = change.key.map(\.value)
        let found = change.oldKey ?? key
        defer { if change.oldKey != nil { settled.insert(key) } }
        guard settled.insert(found).inserted, rows[found] == nil, change.operation != .insert else { return }
        let values = relation.relation.columns.indices.map { column in
            change.oldValue(of: column) ?? relation.keyColumns.firstIndex(of: column).map { found[$0] } ?? .unchanged
        }
        rows[found] = Row(offset: change.offset, witness: .later, relation: relation, values: values, gaps: gaps)
    }

    // MARK: Readings from the database

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
            rows[key] = Row(
                offset: part.offset, order: order, witness: .kept, relation: part.relation, values: values, gaps: gaps)
        }
        noteWhole(part.note)
    }

    private func isUnheardOf(_ key: [RowValue], _ relation: RecordedRelation) -> Bool {
        if let row = rows[key], row.gaps == gaps { return false }
        guard !gone.contains(key), !settled.contains(key) else { return false }
        guard !forgotten.isEmpty || !settledMarks.isEmpty, let hash = relation.rowKey(fromKey: key) else { return true }
        return !forgotten.contains { $0.fits(hash) } && !settledMarks.contains { $0.fits(hash) }
    }

    private mutating func noteWhole(_ note: KeptRows) {
        var known = parts[note.reading] ?? ([], nil)
        known.numbers.insert(note.part)
        if note.isLast { known.last = note.part }
        parts[note.reading] = known
        if let last = known.last, known.numbers.count == Int(last) + 1 { wasRead = true }
    }
}

extension TableRows.Row {
    fileprivate func value(_ name: String) -> RowValue? { relation.relation.column(named: name).map { values[$0] } }
}
