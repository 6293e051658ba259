import Bytes
import Change

/// Identity of a row in a table: a hash of its key. Two rows can have the same hash, so the user must compare the
/// values.
struct RowID: Hashable, Sendable {
    let table: UInt32
    let hash: UInt64
}

/// Columns by which a table's deletes name their row, as indices in one schema of the table.
struct RowColumns: Sendable {
    let table: UInt32
    private let places: [Int]

    /// Returns nil if the schema lacks one of the columns.
    init?(_ names: [String], in relation: Relation) {
        table = relation.oid
        var places: [Int] = []
        for name in names {
            guard let place = relation.column(named: name) else { return nil }
            places.append(place)
        }
        self.places = places
    }

    /// Returns the identity of the row; nil if the image does not contain it.
    func id(of row: borrowing Tuple) throws(ByteError) -> RowID? {
        var hash = KeyHash(seed: 7)
        for place in places {
            guard case .text(let text)? = try row.value(at: place) else { return nil }
            hash.combine(text)
        }
        return RowID(table: table, hash: hash.value)
    }

    /// True if both images are of the same row.
    func isSame(_ row: borrowing Tuple, as other: borrowing Tuple, _ columns: RowColumns) throws(ByteError) -> Bool {
        for (place, otherPlace) in zip(places, columns.places) {
            guard case .text(let text)? = try row.value(at: place),
                case .text(let otherText)? = try other.value(at: otherPlace), text.equals(otherText)
            else { return false }
        }
        return true
    }
}

/// Image of a row made from several images. Each value comes from the first image that has the column.
enum ComposedRow {
    struct Source {
        let tuple: [UInt8]
        let relation: Relation
        /// True if only the key columns of the image have a meaning.
        var isKeyOnly = false
    }

    /// Returns a row of the schema. A value that no source has, or that has another type there, is left out like one
    /// that did not change. A computed value comes from the first source or from none: inputs that were not sent may
    /// still have changed.
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

    /// Returns the ranges of the columns' kinds and values.
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

    /// Returns the index of each of the schema's columns in the source; the name and the exact type must be the same.
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
    /// True if the image leaves out values that the change did not touch.
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

    /// True if this copied row image leaves out values that the change did not touch.
    func isPartialRow() throws(ByteError) -> Bool {
        let tuple = asTuple
        return try tuple.isPartial()
    }

    /// Tuple that reads this copied row image.
    var asTuple: Tuple {
        @_lifetime(borrow self)
        get { Tuple(asBytes) }
    }
}
