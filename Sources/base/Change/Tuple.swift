import Bytes

/// Column of a row image, as PostgreSQL sent it.
public enum ColumnValue: ~Escapable {
    case null
    /// Large value that the change did not touch, so that PostgreSQL did not send it. It is unknown, not NULL.
    case unchanged
    case text(RawSpan)
    case binary(RawSpan)
}

/// Row image in the form of PostgreSQL's TupleData: a column count, then for each column a kind byte and, for values, a
/// length and the bytes. The hub stores the image unchanged, so it copies a row only once.
public struct Tuple: ~Escapable {
    public let bytes: RawSpan

    @_lifetime(copy bytes)
    public init(_ bytes: RawSpan) { self.bytes = bytes }

    public var columnCount: Int {
        guard bytes.byteCount >= 2 else { return 0 }
        return Int(bytes.byte(0)) << 8 | Int(bytes.byte(1))
    }

    @_lifetime(copy self)
    public func columns() -> TupleColumns { TupleColumns(bytes) }

    /// Returns the value of one column; nil if the image has no such column.
    @_lifetime(copy self)
    public func value(at index: Int) throws(ByteError) -> ColumnValue? {
        var columns = columns()
        for _ in 0..<index { guard try columns.next() != nil else { return nil } }
        return try columns.next()
    }
}

/// Iterator over the columns of a row image.
public struct TupleColumns: ~Escapable {
    @usableFromInline var reader: ByteReader
    @usableFromInline var left: Int

    @inlinable
    @_lifetime(copy bytes)
    public init(_ bytes: RawSpan) {
        reader = ByteReader(bytes)
        left = (try? Int(reader.uint16())) ?? 0
    }

    @inlinable public var remaining: Int { left }
    @inlinable public var offset: Int { reader.offset }

    @inlinable
    @_lifetime(copy self)
    public mutating func next() throws(ByteError) -> ColumnValue? {
        guard left > 0 else { return nil }
        left &-= 1
        switch try reader.uint8() {
        case UInt8(ascii: "t"):
            let length = Int(try reader.uint32())
            return .text(try reader.span(length))
        case UInt8(ascii: "n"): return .null
        case UInt8(ascii: "u"): return .unchanged
        case UInt8(ascii: "b"):
            let length = Int(try reader.uint32())
            return .binary(try reader.span(length))
        default:
            throw ByteError(expected: "a column kind (n, u, t or b)", offset: reader.offset - 1)
        }
    }
}
