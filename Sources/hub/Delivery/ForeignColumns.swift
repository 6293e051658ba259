import Bytes
import Catalog
import Change
import Diagnostics

/// Columns of a stored schema that had another type than the table has now. `converted` is the schema of its rows once
/// their values are converted.
struct ForeignColumns {
    /// Present columns, by their index in the stored schema.
    let columns: [Int: CatalogColumn]
    /// Types that the values had when they were stored, by index.
    let formerTypes: [Int: UInt32]
    /// Indices whose values must not be taken for any column's values.
    private let unknown: Set<Int>
    /// Indices of enumeration columns whose labels may have had other texts.
    private let relabelled: Set<Int>
    private let moment: LSN
    let converted: Relation
    let fingerprint: UInt64

    /// Returns nil if the schema has no such columns. A column that the table does not have is ignored.
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
        // Rows with present labels are not rows of the stored schema, although both schemas read the same.
        if !unknown.isEmpty || !relabelled.isEmpty { writer.append("as of now") }
        fingerprint = RelationCodec.fingerprint(of: writer.bytes)
    }

    /// Returns an image with the values of these columns converted. Values that could not be converted are left out,
    /// like values that did not change.
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

/// Request to convert values of one entry's changes: the current change and some later ones.
struct ConversionRequest {
    private struct Place {
        let change: UInt32
        let isOld: Bool
        let column: Int
        /// Index of the value's question; nil if nothing is asked.
        let question: Int?
    }

    private(set) var questions: [ValueConversion] = []
    private var places: [Place] = []
    private var bytes = 0
    /// Index of the first change whose values are not all in the request; those of earlier changes are.
    private(set) var end: UInt32

    init(from change: UInt32) { end = change }

    var isFull: Bool { questions.count >= Limits.questionBatch || bytes >= Limits.questionBatchBytes }

    /// Adds the next change. `foreign` contains the columns of its schema that need conversion.
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

/// Converted values of an entry's changes, by change and column.
struct ConvertedRows {
    /// Index of the first change that was not asked about.
    let end: UInt32
    var old: [UInt32: [Int: ColumnText]] = [:]
    var new: [UInt32: [Int: ColumnText]] = [:]
}
