import Bytes
import Change

/// One column as a subscriber sees it.
public struct VisibleColumn: Sendable {
    /// Its place in the relation, and so in every row image.
    public var index: Int
    /// As `columns` says it; a domain's own name.
    public var typeName: String
    /// That of the base type when the type is a domain.
    public var rendering: ValueRendering

    public init(index: Int, typeName: String, rendering: ValueRendering) {
        self.index = index
        self.typeName = typeName
        self.rendering = rendering
    }
}

/// What of a relation's changes some subscribers see: the columns their role may read, as far as they asked for them.
///
/// It is made once for each relation (as it was at that time) and each set of columns; everything that is the same in all
/// changes is written then.
public struct ChangeView: Sendable {
    /// A column of the relation, seen or not. Without references: it is looked at for every value of every row.
    struct ViewColumn: Sendable {
        var isVisible: Bool
        /// In the old row when the replica identity holds keys only.
        var isIdentity: Bool
        /// In the old row of a delete.
        var isInDeleted: Bool
        /// In the old row of an update.
        var isInReplaced: Bool
        var rendering: JSONRendering
        /// The place in `structured`, or -1 for the plain rendering.
        var structured: Int32
        /// `,"name":` in `text`.
        var nameStart: UInt32
        var nameEnd: UInt32
    }

    /// What a change's body says before the time of the commit, in `text`.
    struct Heads: Sendable {
        var insert = 0..<0
        var update = 0..<0
        var delete = 0..<0
    }

    let columns: [ViewColumn]
    let structured: [ValueRendering]
    let text: [UInt8]
    let heads: Heads
    /// `"columns":[…]` in `text`.
    let columnList: Range<Int>

    /// How much of the row that was is told, of what the replica identity keeps of it.
    public enum Past: Sendable, Hashable {
        case whole
        /// No more than the primary key of a row that is gone.
        case keysOfDeleted
        /// No more than the primary key: who may see the row now was not allowed to see it before …
        case keys
        /// … and where keys tell something, not even that.
        case nothing
    }

    /// `visible` is in the order of the relation.
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
    }

    /// For a relation of built-in types alone; every column is seen unless some are named by their places.
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
