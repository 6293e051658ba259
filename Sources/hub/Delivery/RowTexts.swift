import Bytes
import Catalog
import Change

/// Reader of a change's column texts, for questions to PostgreSQL and for membership keys.
enum RowTexts {
    enum Image {
        case new
        case old
    }

    /// Column whose text is read. The type of the column in the change must be exactly the same.
    struct Wanted {
        let name: String
        let typeOID: UInt32
        /// True if the text must be known. For other columns, nil replaces a value that the image lacks.
        let isNeeded: Bool

        init(_ column: CatalogColumn, isNeeded: Bool = true) {
            name = column.name
            typeOID = column.typeOID
            self.isNeeded = isNeeded
        }
    }

    /// Returns the texts of the columns in order, with nil for NULL. Returns nil if the image lacks a needed one.
    static func texts(
        of columns: [Wanted], in change: borrowing Change, _ relation: Relation, _ image: Image
    ) throws(ByteError) -> [String?]? {
        var texts: [String?] = []
        for column in columns {
            switch try value(of: column, in: change, relation, image) {
            case .text(let text): texts.append(String(decoding: text, as: UTF8.self))
            case .null: texts.append(nil)
            case .absent where column.isNeeded: return nil
            case .absent: texts.append(nil)
            }
        }
        return texts
    }

    /// Returns the text of one column in an image; `absent` if the image lacks it.
    static func value(
        of column: Wanted, in change: borrowing Change, _ relation: Relation, _ image: Image
    ) throws(ByteError) -> ColumnText {
        let place = relation.columns.firstIndex { $0.name == column.name && $0.typeOID == column.typeOID }
        guard let index = place else { return .absent }
        if image == .new, let new = change.new {
            let value = try value(at: index, of: new)
            if case .absent = value {} else { return value }
        }
        // PostgreSQL sends an unchanged key only in the new image.
        if image == .old, change.operation == .update, change.oldImage == .none, relation.columns[index].isIdentity,
            let new = change.new
        {
            return try value(at: index, of: new)
        }
        // PostgreSQL leaves a large unchanged value out of the new image. The old image may have it.
        guard let old = change.old, change.oldImage == .full || relation.columns[index].isIdentity else {
            return .absent
        }
        return try value(at: index, of: old)
    }

    private static func value(at index: Int, of row: borrowing Tuple) throws(ByteError) -> ColumnText {
        switch try row.value(at: index) {
        case .text(let text)?: .text(text.copied())
        case .null?: .null
        case .unchanged?, .binary?, nil: .absent
        }
    }
}
