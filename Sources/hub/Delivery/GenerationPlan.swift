import Bytes
import Catalog
import Change
import Judging
import Policy

/// Plan for adding generated columns to rows of one schema of the log, which lacks those columns.
struct GenerationPlan {
    struct Computed {
        let column: GeneratedColumn
        /// Indices, in rows of the log, of the columns that the expression reads.
        let places: [Int]
    }

    enum Part {
        /// Column of the log's rows, by its index in them.
        case sent(Int)
        /// Generated column, by its index in `computed`.
        case computed(Int)
    }

    /// Schema of the log's rows, to which the plan adds columns.
    let source: Relation
    /// Schema of the rows with generated columns.
    let relation: Relation
    /// Fingerprint that identifies `relation`. It also covers the generated columns' types and expressions.
    let fingerprint: UInt64
    /// Origin of each column of `relation` (sent in the log, or computed), in order.
    let parts: [Part]
    let computed: [Computed]

    /// Creates the plan for one schema. Returns nil if the schema lacks no generated column, or lacks their inputs.
    ///
    /// - Parameter unreadable: types whose values PostgreSQL cannot read back from their texts.
    init?(_ source: Relation, fingerprint: UInt64, _ table: CatalogTable, unreadable: Set<UInt32> = []) {
        var made = Making(source, table, unreadable)
        made.addAll()
        guard !made.computed.isEmpty else { return nil }
        self.source = source
        relation = Relation(
            oid: source.oid, schema: source.schema, name: source.name, identity: source.identity,
            columns: made.columns)
        parts = made.parts
        computed = made.computed
        var hash = KeyHash(seed: fingerprint)
        for computed in made.computed {
            for text in [computed.column.name, computed.column.type, computed.column.expression] {
                hash.combine(Array(text.utf8).asBytes)
            }
        }
        self.fingerprint = hash.value
    }

    private struct Making {
        let source: Relation
        let table: CatalogTable
        let unreadable: Set<UInt32>
        var columns: [Column] = []
        var parts: [Part] = []
        var computed: [Computed] = []

        init(_ source: Relation, _ table: CatalogTable, _ unreadable: Set<UInt32>) {
            self.source = source
            self.table = table
            self.unreadable = unreadable
        }

        /// Adds all columns of the schema with generated columns. A generated column precedes the first sent column
        /// that follows it in the table.
        mutating func addAll() {
            var rest = table.computed.filter { source.column(named: table.columns[$0].name) == nil }[...]
            for (place, column) in source.columns.enumerated() {
                if let slot = table.slot(named: column.name) {
                    while let next = rest.first, next < slot {
                        add(computed: next)
                        rest.removeFirst()
                    }
                }
                columns.append(column)
                parts.append(.sent(place))
            }
            for slot in rest { add(computed: slot) }
        }

        private mutating func add(computed slot: Int) {
            let column = table.columns[slot]
            guard let generation = column.generation, let inputs = inputs(of: generation) else { return }
            let generated = GeneratedColumn(
                name: column.name, type: column.declaredType, expression: generation.expression,
                inputs: inputs.map { input in
                    GeneratedColumn.Input(
                        name: input.column.name, type: input.column.declaredType,
                        collation: input.column.declaredCollation)
                })
            parts.append(.computed(computed.count))
            computed.append(Computed(column: generated, places: inputs.map(\.place)))
            columns.append(
                Column(
                    name: column.name, typeOID: column.typeOID, typeName: column.typeName,
                    isIdentity: source.identity == .full, isPrimaryKey: table.primaryKey.contains(slot),
                    isComputed: true))
        }

        /// Returns the columns that the generated column's expression reads. Returns nil if the schema lacks one of
        /// them or has it with another type, or if one has an unreadable type.
        private func inputs(of generation: ColumnGeneration) -> [(place: Int, column: CatalogColumn)]? {
            let foreign = table.foreignColumns(of: source)
            var inputs: [(place: Int, column: CatalogColumn)] = []
            for column in table.columns where generation.inputs.contains(column.number) {
                guard let place = source.column(named: column.name), !foreign.contains(place),
                    !unreadable.contains(column.facts.type.oid)
                else { return nil }
                inputs.append((place, column))
            }
            return inputs.count == generation.inputs.count ? inputs : nil
        }
    }
}

/// Row images of a change, from which the inputs of generated columns are read.
struct GenerationInputs {
    private let new: [UInt8]?
    private let old: [UInt8]?
    private let newPlaces: [Range<Int>]
    private let oldPlaces: [Range<Int>]
    private let oldImage: OldImage

    init(_ change: borrowing Change) throws(ByteError) {
        let (new, old) = (change.new?.bytes.copied(), change.old?.bytes.copied())
        self.new = new
        self.old = old
        newPlaces = if let new { try ComposedRow.places(of: new) } else { [] }
        oldPlaces = if let old { try ComposedRow.places(of: old) } else { [] }
        oldImage = change.oldImage
    }

    /// Creates the inputs of generated columns from a row that is known completely.
    init(row: [UInt8]) throws(ByteError) {
        new = row
        old = nil
        newPlaces = try ComposedRow.places(of: row)
        oldPlaces = []
        oldImage = .none
    }

    /// Returns the texts of a generated column's inputs in an image, with nil for NULL. Returns nil if the image lacks
    /// one input.
    func texts(_ computed: GenerationPlan.Computed, _ plan: GenerationPlan, isOld: Bool) -> [String?]? {
        var texts: [String?] = []
        for place in computed.places {
            guard let text = isOld ? oldText(place, plan) : newText(place, plan) else { return nil }
            texts.append(text)
        }
        return texts
    }

    private func newText(_ place: Int, _ plan: GenerationPlan) -> String?? {
        guard let new, place < newPlaces.count else { return .none }
        // PostgreSQL leaves a large unchanged value out of the new image. The old image may have it.
        return GenerationInputs.text(new, newPlaces[place]) ?? oldText(place, plan)
    }

    private func oldText(_ place: Int, _ plan: GenerationPlan) -> String?? {
        guard let old, place < oldPlaces.count, oldImage == .full || plan.source.columns[place].isIdentity else {
            return .none
        }
        return GenerationInputs.text(old, oldPlaces[place])
    }

    private static func text(_ row: [UInt8], _ place: Range<Int>) -> String?? {
        switch row[place.lowerBound] {
        case UInt8(ascii: "n"): .some(nil)
        case UInt8(ascii: "t"): .some(String(decoding: row[place.dropFirst(5)], as: UTF8.self))
        default: .none
        }
    }

    /// Returns the old or new image as a row of the plan's `relation`, with the values of generated columns. An unknown
    /// value is marked as unchanged, so that it is not sent.
    func image(
        isOld: Bool, _ plan: GenerationPlan, _ values: [GeneratedValue?]
    ) -> [UInt8] {
        guard let row = isOld ? old : new else { return [] }
        let places = isOld ? oldPlaces : newPlaces
        var writer = ByteWriter(capacity: row.count + 32 * values.count)
        writer.append(big: UInt16(truncatingIfNeeded: plan.parts.count))
        for part in plan.parts {
            switch part {
            case .sent(let place) where place < places.count:
                writer.append(row.asBytes.extracting(places[place]))
            case .sent: writer.append(UInt8(ascii: "u"))
            case .computed(let index): GenerationInputs.append(values[index], to: &writer)
            }
        }
        return writer.copied()
    }

    private static func append(_ value: GeneratedValue?, to writer: inout ByteWriter) {
        switch value {
        case .text(let text)?:
            writer.append(UInt8(ascii: "t"))
            writer.append(big: UInt32(truncatingIfNeeded: text.utf8.count))
            writer.append(text)
        case .null?: writer.append(UInt8(ascii: "n"))
        case .failed?, nil: writer.append(UInt8(ascii: "u"))
        }
    }

    var hasNew: Bool { new != nil }
    /// True if the whole old row is known. A key is not enough, because values are computed from other columns too.
    var hasWholeOld: Bool { old != nil && oldImage == .full }
}
