import Bytes
import Catalog
import Change
@_spi(Judging) import History
import Policy
import System

/// Row of a recorded change in the form in which policies read it: values in the order of the catalog's columns.
struct ExplainedRow {
    /// Values by column index in the catalog's table. A column is absent if the image lacks it or has it with another
    /// type.
    let values: [ColumnText]

    /// Commit time, in microseconds since 1970.
    private let moment: Int64
    /// Commit time of the change, in microseconds since 1970; nil if it has none.
    private let committed: Int64?

    init(_ change: RecordedChange, isOld: Bool, of table: CatalogTable, atThatTime: Bool) {
        moment = (atThatTime ? change.time : nil) ?? Clock.unixMicroseconds()
        committed = change.time
        // Policies and filters evaluate the unmasked values. No output shows one of them.
        let change = change.whole
        let relation = change.relation?.relation
        values = table.columns.map { column in
            let place = relation?.columns.firstIndex(where: column.isSame)
            guard let place else { return .absent }
            switch isOld && !change.keepsKey(place) ? change.oldValue(of: place) : change.value(of: place) {
            // A value that a bundle has masked is unknown.
            case .text(let text)? where MaskMark.isMark(text): return .absent
            case .text(let text)?: return .text(text)
            case .null?: return .null
            case .unchanged?, .binary?, .masked?, nil: return .absent
            }
        }
    }

    func isAbsent(_ slot: Int) -> Bool { if case .absent = values[slot] { true } else { false } }

    func text(_ slot: Int) -> String? {
        if case .text(let text) = values[slot] { String(decoding: text, as: UTF8.self) } else { nil }
    }

    /// Passes the row to `body` in the form in which the predicate index shows rows to predicates.
    ///
    /// - Parameters:
    ///   - before: the row before the change, for a filter that reads that row.
    ///   - oldRow: how the filter may use that row.
    func read<Result>(
        before: ExplainedRow? = nil, _ oldRow: RowImage.OldRow = .none, _ body: (borrowing RowImage) -> Result
    ) -> Result {
        var bytes: [UInt8] = []
        var places: [ColumnPlace] = []
        for value in values + (before?.values ?? []) {
            switch value {
            case .absent: places.append(.absent)
            case .null: places.append(ColumnPlace(kind: .null, start: 0, length: 0))
            case .text(let text):
                places.append(ColumnPlace(kind: .text, start: UInt32(bytes.count), length: UInt32(text.count)))
                bytes += text
            }
        }
        assert(places.count == values.count * (before == nil ? 1 : 2), "each slot of the table has a place")
        // SAFETY: any byte is a valid UInt8, and both arrays outlive the image.
        let image = RowImage(
            bytes: unsafe bytes.span.bytes, places: places.span, moment: PostgresMoment.of(moment),
            committed: committed.map(PostgresMoment.of), oldRow: oldRow)
        return body(image)
    }
}

extension RecordedChange {
    /// True if the change is an update that kept the identity's columns, and this is one of them. Only the new row then
    /// contains its value.
    fileprivate func keepsKey(_ column: Int) -> Bool {
        operation == .update && oldImage == .none && relation?.relation.columns[column].isIdentity == true
    }
}
