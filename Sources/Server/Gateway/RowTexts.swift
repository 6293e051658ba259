import Bytes
import Change

/// The texts of a change's columns, for questions to PostgreSQL and for keys of memberships.
enum RowTexts {
    enum Image {
        case new
        case old
    }

    enum Value {
        case text([UInt8])
        case null
        /// The image does not hold the column.
        case absent
    }

    /// In the order of the names, nil for NULL; nothing at all where one of the columns is not in the image.
    static func texts(
        of names: [String], in change: borrowing Change, _ relation: Relation, _ image: Image
    ) throws(ByteError) -> [String?]? {
        var texts: [String?] = []
        for name in names {
            switch try value(of: name, in: change, relation, image) {
            case .text(let text): texts.append(String(decoding: text, as: UTF8.self))
            case .null: texts.append(nil)
            case .absent: return nil
            }
        }
        return texts
    }

    static func value(
        of name: String, in change: borrowing Change, _ relation: Relation, _ image: Image
    ) throws(ByteError) -> Value {
        guard let index = relation.columns.firstIndex(where: { $0.name == name }) else { return .absent }
        if image == .new, let new = change.new {
            let value = try value(at: index, of: new)
            if case .absent = value {} else { return value }
        }
        // A large value that did not change is in the old image, if that has the column at all.
        guard let old = change.old, change.oldImage == .full || relation.columns[index].isIdentity else {
            return .absent
        }
        return try value(at: index, of: old)
    }

    private static func value(at index: Int, of row: borrowing Tuple) throws(ByteError) -> Value {
        switch try row.value(at: index) {
        case .text(let text)?: .text(text.copied())
        case .null?: .null
        case .unchanged?, .binary?, nil: .absent
        }
    }
}
