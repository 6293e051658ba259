import Bytes
import Change

/// Column of a relation that a subscriber sees.
public struct VisibleColumn: Sendable {
    /// Index of the column in the relation, and so in every row image.
    public var index: Int
    /// Type name that the body's member `columns` shows. For a domain it is the domain's own name.
    public var typeName: String
    /// Rendering of the column's values as JSON. For a domain it is the rendering of the base type.
    public var rendering: ValueRendering

    public init(index: Int, typeName: String, rendering: ValueRendering) {
        self.index = index
        self.typeName = typeName
        self.rendering = rendering
    }
}

/// Columns of a relation that some subscribers see: those that their role may read and that they selected.
///
/// The hub makes one view for each version of a relation and each set of columns. The view contains the text that all
/// changes have in common, already written.
public struct ChangeView: Sendable {
    /// Column of the relation, visible or not. The type holds no references, because the writer reads it for every
    /// value of every row.
    struct ViewColumn: Sendable {
        var isVisible: Bool
        /// True if the column belongs to the replica identity, and so to an old row that holds keys only.
        var isIdentity: Bool
        /// True if receivers see the column in the old row of a delete.
        var isInDeleted: Bool
        /// True if receivers see the column in the old row of an update.
        var isInReplaced: Bool
        var rendering: JSONRendering
        /// Index in `structured`, or -1 if `rendering` applies.
        var structured: Int32
        /// Offset in `text` at which the text `,"name":` begins.
        var nameStart: UInt32
        /// Offset in `text` at which the text `,"name":` ends.
        var nameEnd: UInt32
    }

    /// Ranges in `text` of the beginning of a body, up to the commit time, by operation.
    struct Heads: Sendable {
        var insert = 0..<0
        var update = 0..<0
        var delete = 0..<0
    }

    let columns: [ViewColumn]
    let structured: [ValueRendering]
    let text: [UInt8]
    let heads: Heads
    /// Range of the member `"columns":[…]` in `text`.
    let columnList: Range<Int>

    /// Part of the old row that receivers get. The replica identity decides which columns of the old row exist at all.
    public enum Past: Sendable, Hashable {
        /// All columns of the old row.
        case whole
        /// All columns of an updated row; only the primary key of a deleted row.
        case keysOfDeleted
        /// Only the primary key, because some subscriber that may see the new row was perhaps not allowed to see the
        /// old one.
        case keys
        /// Only the primary key of a deleted row, and nothing of an updated row, because the old key would reveal
        /// something.
        case nothing
    }

    /// Makes a view. `visible` must be in the order of the relation's columns.
    public init(_ relation: Relation, visible: [VisibleColumn], past: Past = .whole) {
        precondition(
            visible.allSatisfy { relation.columns.indices.contains($0.index) }, "a view shows columns of its relation")
        var writer = ByteWriter(capacity: 1024)
        heads = Heads(
            insert: Self.appendHead(of: .insert, relation, to: &writer),
            update: Self.appendHead(of: .update, relation, to: &writer),
            delete: Self.appendHead(of: .delete, relation, to: &writer))
        columnList = Self.appendColumnList(visible, of: relation, to: &writer)
        var structured: [ValueRendering] = []
        var columns = relation.columns.map { column in
            ViewColumn(
                isVisible: false, isIdentity: column.isIdentity,
                isInDeleted: column.isPrimaryKey || past == .whole,
                isInReplaced: past == .keys ? column.isPrimaryKey : past != .nothing, rendering: .scalar(.text),
                structured: -1,
                nameStart: 0, nameEnd: 0)
        }
        for seen in visible {
            Self.show(seen, name: relation.columns[seen.index].name, &columns[seen.index], &structured, &writer)
        }
        self.columns = columns
        self.structured = structured
        text = writer.copied()
        assert(
            heads.insert.upperBound <= heads.update.lowerBound && heads.update.upperBound <= heads.delete.lowerBound
                && heads.delete.upperBound <= columnList.lowerBound && columnList.upperBound <= text.count,
            "the texts of a view do not overlap")
    }

    /// Makes a view of a relation whose columns all have built-in types. `columns` lists the indexes of the visible
    /// columns; nil means all.
    public init(_ relation: Relation, columns: [Int]? = nil, past: Past = .whole) {
        let visible = (columns ?? Array(relation.columns.indices)).map { index in
            VisibleColumn(
                index: index, typeName: relation.columns[index].typeName,
                rendering: .plain(BuiltInType.rendering(of: relation.columns[index].typeOID)))
        }
        self.init(relation, visible: visible, past: past)
    }

    private static func show(
        _ seen: VisibleColumn, name: String, _ column: inout ViewColumn, _ structured: inout [ValueRendering],
        _ writer: inout ByteWriter
    ) {
        assert(!column.isVisible, "a view shows each column once")
        column.isVisible = true
        column.nameStart = UInt32(writer.count)
        writer.append(UInt8(ascii: ","))
        JSONText.appendString(name, to: &writer)
        writer.append(UInt8(ascii: ":"))
        column.nameEnd = UInt32(writer.count)
        if case .plain(let rendering) = seen.rendering {
            column.rendering = rendering
        } else {
            column.structured = Int32(structured.count)
            structured.append(seen.rendering)
        }
    }

    private static func appendHead(
        of operation: Operation, _ relation: Relation, to writer: inout ByteWriter
    ) -> Range<Int> {
        let start = writer.count
        writer.append("{\"schema\":")
        JSONText.appendString(relation.schema, to: &writer)
        writer.append(",\"table\":")
        JSONText.appendString(relation.name, to: &writer)
        writer.append(",\"type\":")
        JSONText.appendString(operation.name, to: &writer)
        writer.append(",\"commit_timestamp\":\"")
        return start..<writer.count
    }

    private static func appendColumnList(
        _ visible: [VisibleColumn], of relation: Relation, to writer: inout ByteWriter
    ) -> Range<Int> {
        let start = writer.count
        writer.append("\"columns\":[")
        for (place, column) in visible.enumerated() {
            writer.append(place > 0 ? ",{\"name\":" : "{\"name\":")
            JSONText.appendString(relation.columns[column.index].name, to: &writer)
            writer.append(",\"type\":")
            JSONText.appendString(column.typeName, to: &writer)
            writer.append("}")
        }
        writer.append("]")
        return start..<writer.count
    }
}
