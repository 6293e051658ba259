import Bytes
import Change

/// Data found about a change's row besides the change's own images. Few changes have one, so it is a separate object.
final class Completion {
    /// Change with its whole row, on which filters and policies are evaluated; nil if the change itself suffices.
    let whole: WholeChange?
    /// Old row of an update that contains at most its key; nil if it was not found. It decides who receives the old
    /// key, and whose view the row leaves.
    let former: [UInt8]?

    init(_ whole: WholeChange?, former: [UInt8]?) {
        self.whole = whole
        self.former = former
    }
}

/// Change of one row, separate from its transaction, with as much of the row as the hub could find in the log or get
/// from PostgreSQL.
struct WholeChange {
    /// Part of a transaction that contains only this change.
    let part: [UInt8]
    /// Schema of the change's images.
    let relation: Relation
    let fingerprint: UInt64

    /// Creates a change with the image `row`: the new row, or the deleted row. `schema` is the fingerprint of the
    /// relation.
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

    /// Creates a change with only its stored images, because the hub found nothing more of the row.
    init(asIs change: borrowing Change, _ relation: Relation) {
        self.init(
            change, images: change.old?.bytes.copied() ?? [], change.new?.bytes.copied() ?? [], relation,
            change.relation)
    }

    /// Creates a change with the given images instead of its stored ones.
    init(_ change: borrowing Change, images old: [UInt8], _ new: [UInt8], _ relation: Relation, _ schema: UInt64) {
        self.relation = relation
        fingerprint = schema
        part = Self.part(change.operation, schema, change.oldImage, old: old, new: new)
    }

    /// Returns the change with the whole row before it, on which filters that read that row are evaluated. Clients do not
    /// receive this form of the change.
    func evaluated(withOldRow row: [UInt8]) throws(ByteError) -> WholeChange {
        var rest = try TransactionPart(part.asBytes)
        guard let change = try rest.next(), change.operation == .update, let new = change.new else { return self }
        return WholeChange(
            part: Self.part(.update, fingerprint, .full, old: row, new: new.bytes.copied()), relation, fingerprint)
    }

    private init(part: [UInt8], _ relation: Relation, _ fingerprint: UInt64) {
        self.part = part
        self.relation = relation
        self.fingerprint = fingerprint
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
