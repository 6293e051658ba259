import Bytes
import Catalog
import Change
import Diagnostics

/// Columns of a stored schema whose type differs from the table's current type, or whose stored values may have had
/// another meaning.
struct ForeignColumns {
    /// Columns of the table, as the catalog has them now, by their index in the stored schema.
    let columns: [Int: CatalogColumn]
    /// OIDs of the types in which the values were stored, by the column's index in the stored schema.
    let formerTypes: [Int: UInt32]
    /// Indices of columns whose stored values may belong to another column, so that the hub must not use them.
    private let unknown: Set<Int>
    /// Indices of enumeration columns whose labels may have been renamed since the values were stored.
    private let relabelled: Set<Int>
    private let moment: LSN
    /// Schema of the rows after PostgreSQL has converted the values of the columns.
    let converted: Relation
    let fingerprint: UInt64

    /// Creates the conversion of the columns whose indices in the schema are `places`. Returns nil if the table has
    /// none of these columns any more.
    init?(
        _ relation: Relation, _ places: Set<Int>, of table: CatalogTable, _ identities: ColumnIdentities? = nil,
        at moment: LSN = .zero
    ) {
        var (columns, converted): ([Int: CatalogColumn], Relation) = ([:], relation)
        var (unknown, relabelled): (Set<Int>, Set<Int>) = ([], [])
        for place in places {
            var slot = table.slot(named: relation.columns[place].name)
            if slot == nil, let identities, case .unknown(let lacking?) = identities.places[place] {
                slot = lacking
                unknown.insert(place)
            }
            guard let slot else { continue }
            let column = table.columns[slot]
            if identities != nil, !column.isSure(at: moment) {
                if column.labels.isEmpty || !column.isSame(as: relation.columns[place]) {
                    unknown.insert(place)
                } else {
                    relabelled.insert(place)
                }
            }
            columns[place] = column
            if unknown.contains(place) { converted.columns[place].name = column.name }
            converted.columns[place].typeOID = column.typeOID
            converted.columns[place].typeName = column.typeName
            converted.columns[place].typeModifier = -1
        }
        guard !columns.isEmpty else { return nil }
        self.columns = columns
        (self.unknown, self.relabelled, self.moment) = (unknown, relabelled, moment)
        formerTypes = columns.keys.filter { !unknown.contains($0) && !relabelled.contains($0) }
            .reduce(into: [:]) { $0[$1] = relation.columns[$1].typeOID }
        self.converted = converted
        var writer = ByteWriter()
        RelationCodec.encode(converted, to: &writer)
        // Rows with current labels differ from rows of the stored schema, although both schemas look the same.
        if !unknown.isEmpty || !relabelled.isEmpty { writer.append("as of now") }
        fingerprint = RelationCodec.fingerprint(of: writer.bytes)
    }

    /// Returns an image with the values of these columns converted. A value that could not be converted is marked as
    /// unchanged, so that it is not sent.
    func rewritten(_ tuple: borrowing Tuple, _ values: [Int: ColumnText]) throws(ByteError) -> [UInt8] {
        var writer = ByteWriter(capacity: tuple.bytes.byteCount + 64)
        writer.append(big: UInt16(truncatingIfNeeded: tuple.columnCount))
        var reader = tuple.columns()
        for place in 0..<tuple.columnCount {
            let start = reader.offset
            guard let value = try reader.next() else { break }
            if unknown.contains(place) {
                writer.append(UInt8(ascii: "u"))
                continue
            }
            guard let column = columns[place], case .text(let text) = value else {
                writer.append(tuple.bytes.extracting(start..<reader.offset))
                continue
            }
            let isRelabelled = relabelled.contains(place)
            switch isRelabelled ? label(text, of: column) : values[place] ?? .absent {
            case .text(let text):
                writer.append(UInt8(ascii: "t"))
                writer.append(big: UInt32(text.count))
                writer.append(text.asBytes)
            case .null: writer.append(UInt8(ascii: "n"))
            case .absent: writer.append(UInt8(ascii: "u"))
            }
        }
        return writer.copied()
    }

    private func label(_ text: RawSpan, of column: CatalogColumn) -> ColumnText {
        column.label(text.text, at: moment).map { .text(Array($0.utf8)) } ?? .absent
    }
}

/// Request to PostgreSQL to convert stored values to the current types of their columns: values of the current change,
/// and of later changes in its entry.
struct ConversionRequest {
    private struct Place {
        let change: UInt32
        let isOld: Bool
        let column: Int
        /// Index of the value's question in `questions`; nil if the value cannot be converted.
        let question: Int?
    }

    private(set) var questions: [ValueConversion] = []
    private var places: [Place] = []
    private var bytes = 0
    /// Index of the first change in the entry that the request does not contain.
    private(set) var end: UInt32

    init(from change: UInt32) { end = change }

    var isFull: Bool { questions.count >= Limits.questionBatch || bytes >= Limits.questionBatchBytes }

    /// Adds the values of the next change that need conversion. `foreign` holds the columns of its schema that need
    /// conversion; nil if there are none.
    mutating func add(_ change: borrowing Change, _ foreign: ForeignColumns?) throws(ByteError) {
        defer { end += 1 }
        guard let foreign else { return }
        if let old = change.old { try add(old, isOld: true, foreign) }
        if let new = change.new { try add(new, isOld: false, foreign) }
    }

    private mutating func add(
        _ row: borrowing Tuple, isOld: Bool, _ foreign: ForeignColumns
    ) throws(ByteError) {
        for (column, target) in foreign.columns {
            guard case .text(let text)? = try row.value(at: column), let oid = foreign.formerTypes[column] else {
                continue
            }
            let question = ValueConversion(text.copied(), of: oid, to: target)
            places.append(
                Place(change: end, isOld: isOld, column: column, question: question.map { _ in questions.count }))
            if let question {
                questions.append(question)
                bytes += question.text.count
            }
        }
    }

    func converted(_ answers: [ColumnText]) -> ConvertedRows {
        var rows = ConvertedRows(end: end)
        for place in places {
            let value = place.question.map { answers[$0] } ?? .absent
            if place.isOld {
                rows.old[place.change, default: [:]][place.column] = value
            } else {
                rows.new[place.change, default: [:]][place.column] = value
            }
        }
        return rows
    }
}

/// Converted values of an entry's changes, by index of the change and of the column.
struct ConvertedRows {
    /// Index of the first change in the entry whose values were not converted.
    let end: UInt32
    var old: [UInt32: [Int: ColumnText]] = [:]
    var new: [UInt32: [Int: ColumnText]] = [:]
}
