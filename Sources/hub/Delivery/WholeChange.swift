import Bytes
import Change

/// What was found of a change's row beside its images. Few changes need that, and the others should not pay for it.
final class Completion {
    /// The change with all of its row: everybody is judged on that.
    let whole: WholeChange?
    /// The row that an update tells at most the key of: whether somebody hears what the key was, and from whom the update
    /// takes the row away, is judged on that.
    let former: [UInt8]?

    init(_ whole: WholeChange?, former: [UInt8]?) {
        self.whole = whole
        self.former = former
    }
}

/// A change of one row that stands by itself, with as much of the row as could be found: what the stored change lacks is
/// from the log or from PostgreSQL.
struct WholeChange {
    /// A part of a transaction with this change alone.
    let part: [UInt8]
    /// The schema that its images have.
    let relation: Relation
    let fingerprint: UInt64

    /// `row` is the image that is judged: the row after an insert or update, or as it was before a delete. `schema` is its
    /// relation's fingerprint.
    init(
        _ change: borrowing Change, row: [UInt8], old: [UInt8]? = nil, _ relation: Relation, _ schema: UInt64
    ) {
        self.relation = relation
        fingerprint = schema
        let old = change.operation == .delete ? row : old ?? change.old?.bytes.copied() ?? []
        part = Self.part(
            change.operation, schema, change.operation == .delete ? .full : change.oldImage, old: old,
            new: change.operation == .delete ? [] : row)
    }

    /// As it is: nothing more could be found.
    init(asIs change: borrowing Change, _ relation: Relation) {
        self.init(
            change, images: change.old?.bytes.copied() ?? [], change.new?.bytes.copied() ?? [], relation,
            change.relation)
    }

    /// With these images in the place of its own.
    init(_ change: borrowing Change, images old: [UInt8], _ new: [UInt8], _ relation: Relation, _ schema: UInt64) {
        self.relation = relation
        fingerprint = schema
        part = Self.part(change.operation, schema, change.oldImage, old: old, new: new)
    }

    private static func part(
        _ operation: Operation, _ schema: UInt64, _ image: OldImage, old: [UInt8], new: [UInt8]
    ) -> [UInt8] {
        var writer = ByteWriter(capacity: old.count + new.count + 128)
        let info = TransactionInfo(xid: 0, commitLSN: LSN(0), endLSN: LSN(0), commitTime: 0)
        TransactionCodec.begin(info, firstIndex: 0, to: &writer)
        TransactionCodec.append(
            operation, relation: schema, oldImage: image, old: old.asBytes, new: new.asBytes, to: &writer)
        TransactionCodec.finish(endLSN: LSN(0), changeCount: 1, in: &writer)
        return writer.copied()
    }
}
