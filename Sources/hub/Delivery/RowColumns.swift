import Bytes
import Change

/// A row of a table, whatever it holds: a hash of what tells it from others. Who finds one compares the values.
struct RowID: Hashable, Sendable {
    let table: UInt32
    let hash: UInt64
}

/// The columns by which a table's deletes name their row, as rows of one schema of the table have them.
struct RowColumns: Sendable {
    let table: UInt32
    private let places: [Int]

    /// Nil where the schema lacks one of them.
    init?(_ names: [String], in relation: Relation) {
        table = relation.oid
        var places: [Int] = []
        for name in names {
            guard let place = relation.column(named: name) else { return nil }
            places.append(place)
        }
        self.places = places
    }

    /// Which row it is; nil where the image does not tell.
    func id(of row: borrowing Tuple) throws(ByteError) -> RowID? {
        var hash = KeyHash(seed: 7)
        for place in places {
            guard case .text(let text)? = try row.value(at: place) else { return nil }
            hash.combine(text)
        }
        return RowID(table: table, hash: hash.value)
    }

    /// Whether two images are of the same row.
    func isSame(_ row: borrowing Tuple, as other: borrowing Tuple, _ columns: RowColumns) throws(ByteError) -> Bool {
        for (place, otherPlace) in zip(places, columns.places) {
            guard case .text(let text)? = try row.value(at: place),
                case .text(let otherText)? = try other.value(at: otherPlace), text.equals(otherText)
            else { return false }
        }
        return true
    }
}

/// One image of a row made of several, of which the first that has a column's value gives it.
enum ComposedRow {
    struct Source {
        let tuple: [UInt8]
        let relation: Relation
        /// Only these columns of it mean anything.
        var isKeyOnly = false
    }

    /// As rows of the schema are. A value that none has, or only as another type, is left out like one that did not change.
    /// A computed one is the first row's or nobody's: that its inputs were not sent does not mean that they stayed.
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

    /// Where each column's kind and value lie.
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

    /// Where the schema's columns are in the source's: by name, and of the very same type.
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
    /// Values are left out that the change did not touch.
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

    /// Of a row image that was copied: whether values are left out that the change did not touch.
    func isPartialRow() throws(ByteError) -> Bool {
        let tuple = asTuple
        return try tuple.isPartial()
    }

    /// A row image that was copied.
    var asTuple: Tuple {
        @_lifetime(borrow self)
        get { Tuple(asBytes) }
    }
}
