import Bytes
import Change

/// Selection of a row's columns to write. A writer never writes columns that the view hides.
enum RowPart {
    case all
    /// Columns of the replica identity. For an image that has meaningful values in these columns only.
    case identity
    /// Columns that receivers may see of a deleted row.
    case deleted
    /// Columns of the replica identity that receivers may see of a deleted row.
    case deletedIdentity
    /// Columns that receivers may see of an updated row's old version.
    case replaced
    /// Columns of the replica identity that receivers may see of an updated row's old version.
    case replacedIdentity

    @inline(__always)
    func holds(_ column: ChangeView.ViewColumn) -> Bool {
        switch self {
        case .all: true
        case .identity: column.isIdentity
        case .deleted: column.isInDeleted
        case .deletedIdentity: column.isIdentity && column.isInDeleted
        case .replaced: column.isInReplaced
        case .replacedIdentity: column.isIdentity && column.isInReplaced
        }
    }
}

/// Writer of the members of the objects `record` and `old_record`.
struct RowWriter: ~Escapable {
    private let columns: Span<ChangeView.ViewColumn>
    private let structured: Span<ValueRendering>
    private let text: RawSpan
    /// Largest number of bytes that the output buffer may reach.
    private let limit: Int
    /// True if the writer leaves out long values and NULLs.
    private let smallOnly: Bool

    @_lifetime(borrow view)
    init(_ view: borrowing ChangeView, limit: Int, smallOnly: Bool) {
        assert(!smallOnly || limit == .max, "small values are written whatever the row's length")
        columns = view.columns.span
        structured = view.structured.span
        // SAFETY: any byte is a valid UInt8, and the span lives as long as the view's text.
        text = unsafe view.text.span.bytes
        self.limit = limit
        self.smallOnly = smallOnly
    }

    /// Writes a row. Returns false if the buffer exceeds the limit.
    func append(_ row: borrowing Tuple, _ part: RowPart, _ writer: inout ByteWriter) throws(ByteError) -> Bool {
        var values = row.columns()
        var isFirst = true
        for index in columns.indices {
            guard let value = try values.next() else { break }
            let column = columns[index]
            guard column.isVisible, part.holds(column) else { continue }
            guard append(value, column, &isFirst, &writer) else { return false }
        }
        return writer.count <= limit
    }

    /// Writes a row. Takes the values that PostgreSQL did not send with `row` from `old`. Returns false if the buffer
    /// exceeds the limit.
    func append(
        _ row: borrowing Tuple, filledFrom old: borrowing Tuple, _ writer: inout ByteWriter
    ) throws(ByteError) -> Bool {
        var values = row.columns()
        var oldValues = old.columns()
        var isFirst = true
        for index in columns.indices {
            guard let value = try values.next() else { break }
            let oldValue = try oldValues.next()
            let column = columns[index]
            guard column.isVisible else { continue }
            if case .unchanged = value, let oldValue {
                guard append(oldValue, column, &isFirst, &writer) else { return false }
            } else {
                guard append(value, column, &isFirst, &writer) else { return false }
            }
        }
        return writer.count <= limit
    }

    @inline(__always)
    private func append(
        _ value: borrowing ColumnValue, _ column: ChangeView.ViewColumn, _ isFirst: inout Bool,
        _ writer: inout ByteWriter
    ) -> Bool {
        switch value {
        case .null:
            if smallOnly { return true }
            appendName(column, &isFirst, &writer)
            writer.append("null")
            return true
        case .text(let value):
            if smallOnly {
                appendSmall(value, column, &isFirst, &writer)
                return true
            }
            // The value's text alone exceeds the limit, so it is refused before it is rendered.
            guard value.byteCount <= limit &- writer.count else { return false }
            appendName(column, &isFirst, &writer)
            append(value, column, &writer)
            return writer.count <= limit
        // The hub asks PostgreSQL for text values. A value that PostgreSQL did not send is unknown, and unknown is not
        // NULL.
        case .unchanged, .binary: return true
        }
    }

    @inline(__always)
    private func append(_ value: RawSpan, _ column: ChangeView.ViewColumn, _ writer: inout ByteWriter) {
        if column.structured < 0 {
            column.rendering.append(value, to: &writer)
        } else {
            structured[Int(column.structured)].append(value, to: &writer)
        }
    }

    @inline(__always)
    private func appendName(_ column: ChangeView.ViewColumn, _ isFirst: inout Bool, _ writer: inout ByteWriter) {
        assert(column.nameStart < column.nameEnd, "a visible column has a name in the view's text")
        // The first member has no comma before it.
        let start = Int(column.nameStart) &+ (isFirst ? 1 : 0)
        writer.append(text.extracting(start..<Int(column.nameEnd)))
        isFirst = false
    }

    /// Longest text, in bytes, that may still become a small value. Rendering shortens a text at most by the escapes of
    /// an array.
    private static let longestSmallText = 8 * ChangeEncoder.maximumSmallValueBytes

    private func appendSmall(
        _ value: RawSpan, _ column: ChangeView.ViewColumn, _ isFirst: inout Bool, _ writer: inout ByteWriter
    ) {
        guard value.byteCount <= Self.longestSmallText else { return }
        let before = writer.count
        let wasFirst = isFirst
        appendName(column, &isFirst, &writer)
        let start = writer.count
        append(value, column, &writer)
        if writer.count - start > ChangeEncoder.maximumSmallValueBytes {
            writer.truncate(to: before)
            isFirst = wasFirst
        }
    }
}
