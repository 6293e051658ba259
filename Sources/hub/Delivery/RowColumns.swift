import Bytes
import Change

/// Identity of a row: its table and a hash of its key. Two rows can have the same hash, so the user must also compare
/// the keys.
struct RowID: Hashable, Sendable {
    let table: UInt32
    let hash: UInt64
}

/// Columns by which a table's deletes identify a row, as indices in one schema of the table.
struct RowColumns: Sendable {
    let table: UInt32
    private let places: [Int]

    /// Finds the columns with these names in a schema. Returns nil if the schema lacks one of them.
    init?(_ names: [String], in relation: Relation) {
        table = relation.oid
        var places: [Int] = []
        for name in names {
            guard let place = relation.column(named: name) else { return nil }
            places.append(place)
        }
        self.places = places
    }

    /// Returns the identity of the row; nil if the image lacks a key column.
    func id(of row: borrowing Tuple) throws(ByteError) -> RowID? {
        var hash = KeyHash(seed: 7)
        for place in places {
            guard case .text(let text)? = try row.value(at: place) else { return nil }
            hash.combine(text)
        }
        return RowID(table: table, hash: hash.value)
    }

    /// True if both images have the same key. `columns` are the key columns in the schema of `other`.
    func isSame(_ row: borrowing Tuple, as other: borrowing Tuple, _ columns: RowColumns) throws(ByteError) -> Bool {
        for (place, otherPlace) in zip(places, columns.places) {
            guard case .text(let text)? = try row.value(at: place),
                case .text(let otherText)? = try other.value(at: otherPlace), text.equals(otherText)
            else { return false }
        }
        return true
    }
}

/// Composition of a row's image from several images. Each value is from the first image that has it.
enum ComposedRow {
    struct Source {
        let tuple: [UInt8]
        let relation: Relation
        /// True if only the key columns of the image contain values.
        var isKeyOnly = false
    }

    /// Returns a row of the schema. A value that no source has with the same type is marked as unchanged. A generated
    /// value that the hub computed is from the first source that has the column, even if it is unchanged there: an
    /// older one may be out of date.
    static func compose(_ relation: Relation, from sources: [Source]) throws(ByteError) -> [UInt8] {
        var prepared: [(places: [Range<Int>], columns: [Int?])] = []
        for source in sources {
            prepared.append((try places(of: source.tuple), columns(of: relation, in: source)))
        }
        var writer = ByteWriter(capacity: (sources.map(\.tuple.count).max() ?? 0) + 2 * relation.columns.count)
        writer.append(big: UInt16(truncatingIfNeeded: relation.columns.count))
        for index in relation.columns.indices {
            var isFound = false
            for (source, known) in zip(sources, prepared) where !isFound {
                guard let place = known.columns[index], place < known.places.count else { continue }
                let value = source.tuple.asBytes.extracting(known.places[place])
                if value.byte(0) == UInt8(ascii: "u"), !relation.columns[index].isComputed { continue }
                writer.append(value)
                isFound = true
            }
            if !isFound { writer.append(UInt8(ascii: "u")) }
        }
        return writer.copied()
    }

    /// Returns the byte range of each column in a row image: its kind and its value.
    static func places(of tuple: [UInt8]) throws(ByteError) -> [Range<Int>] {
        var places: [Range<Int>] = []
        var columns = tuple.asTuple.columns()
        var start = columns.offset
        while try columns.next() != nil {
            places.append(start..<columns.offset)
            start = columns.offset
        }
        return places
    }

    /// Returns, for each of the schema's columns, its index in the source. Names and exact types must be equal.
    private static func columns(of relation: Relation, in source: Source) -> [Int?] {
        let theirs = Dictionary(
            source.relation.columns.enumerated().map { ($1.name, $0) }, uniquingKeysWith: { first, _ in first })
        return relation.columns.map { column in
            guard let place = theirs[column.name] else { return nil }
            let other = source.relation.columns[place]
            let isSame = other.typeOID == column.typeOID && other.typeModifier == column.typeModifier
            return isSame && (!source.isKeyOnly || other.isIdentity) ? place : nil
        }
    }
}

extension Tuple {
    /// True if the image omits values that the change left unchanged.
    func isPartial() throws(ByteError) -> Bool {
        var columns = columns()
        while let value = try columns.next() { if case .unchanged = value { return true } }
        return false
    }
}

extension [UInt8] {
    var asBytes: RawSpan {
        @_lifetime(borrow self)
        get {
            // SAFETY: any byte is a valid UInt8, and bytes are all there is of it.
            let bytes = unsafe span.bytes
            return unsafe _overrideLifetime(bytes, borrowing: self)
        }
    }

    /// True if this row image omits values that the change left unchanged.
    func isPartialRow() throws(ByteError) -> Bool {
        let tuple = asTuple
        return try tuple.isPartial()
    }

    /// Reader of the columns of this row image.
    var asTuple: Tuple {
        @_lifetime(borrow self)
        get { Tuple(asBytes) }
    }
}
