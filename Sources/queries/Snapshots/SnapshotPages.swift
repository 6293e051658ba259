import Bytes
import Catalog
import Change
import Diagnostics
import Protocol
import System

/// Rows in, pages of bodies out: one at a time, when it is wanted.
final class SnapshotPages {
    private let job: SnapshotJob
    private let encoder: ChangeEncoder
    private let readAt: Int64
    private let metrics: ProjectMetrics
    private let ends: UInt64
    private var taken: UInt64 = 0
    private var selection = 0
    private var view: ChangeView
    /// Of the columns that the statement gives, those that may be too large, by their places.
    private var largePlaces: [Int] = []
    private var writer = ByteWriter(capacity: Limits.snapshotPageBytes + (16 << 10))
    private var rows: [SnapshotPage.Row] = []
    private var byteCount = 0
    private(set) var refusal: SnapshotRefusal?

    init(_ job: SnapshotJob, readAt: Int64, _ metrics: ProjectMetrics) {
        self.job = job
        self.readAt = readAt
        self.metrics = metrics
        encoder = ChangeEncoder(maximumBodyBytes: job.request.maximumBodyBytes)
        ends = Clock.monotonicNanoseconds() + Limits.snapshotPatience.wholeNanoseconds
        view = ChangeView(of: job.request.selections[0])
    }

    /// What comes now is of that selection.
    func begin(_ selection: Int) {
        self.selection = selection
        let wanted = job.request.selections[selection]
        view = ChangeView(of: wanted)
        largePlaces = wanted.columns.indices.filter { wanted.isLarge(wanted.columns[$0]) }
    }

    /// False where nothing more is to be read; `refusal` says why.
    func take(_ tuple: RawSpan) -> Bool {
        do throws(ByteError) {
            let start = writer.count
            try append(tuple)
            rows.append(SnapshotPage.Row(selection: selection, body: start..<writer.count))
            byteCount += writer.count - start
        } catch {
            refusal = .failed(sqlState: "XX000")
            return false
        }
        guard byteCount <= Limits.maximumSnapshotBytes else {
            refusal = .tooManyBytes(limit: Limits.maximumSnapshotBytes)
            return false
        }
        let isFull = writer.count >= Limits.snapshotPageBytes || rows.count >= Limits.snapshotPageRows
        return isFull ? hand() : true
    }

    /// The first value marks those that are left out.
    private func append(_ tuple: RawSpan) throws(ByteError) {
        var values = Tuple(tuple).columns()
        guard case .text(let marks)? = try values.next() else {
            throw ByteError(expected: "marks of large values", offset: 0)
        }
        let isTooLarge = (0..<marks.byteCount).contains { marks.byte($0) == UInt8(ascii: "1") }
        // What stands behind the marks is a row without its count.
        let rest = tuple.extracting(droppingFirst: values.offset)
        var row = ByteWriter(capacity: rest.byteCount + 2)
        row.append(big: UInt16(truncatingIfNeeded: values.remaining))
        if isTooLarge { try appendWithout(marks, &values, &row) } else { row.append(rest) }
        try encoder.append(existing: Tuple(row.bytes), view, readAt: readAt, isTooLarge: isTooLarge, to: &writer)
    }

    /// A value that is too large is absent, not NULL.
    private func appendWithout(
        _ marks: RawSpan, _ values: inout TupleColumns, _ row: inout ByteWriter
    ) throws(ByteError) {
        var place = 0
        var large = 0
        while let value = try values.next() {
            var isLeftOut = false
            if large < largePlaces.count, largePlaces[large] == place {
                isLeftOut = large < marks.byteCount && marks.byte(large) == UInt8(ascii: "1")
                large += 1
            }
            place += 1
            switch value {
            case _ where isLeftOut: row.append(UInt8(ascii: "u"))
            case .text(let text):
                row.append(UInt8(ascii: "t"))
                row.append(big: UInt32(truncatingIfNeeded: text.byteCount))
                row.append(text)
            default: row.append(UInt8(ascii: "n"))
            }
        }
    }

    func finish() throws(SnapshotRefusal) {
        if !rows.isEmpty, !hand(), let refusal { throw refusal }
    }

    /// When the one before was taken.
    private func hand() -> Bool {
        let now = Clock.monotonicNanoseconds()
        let patience = now + Limits.snapshotPagePatience.wholeNanoseconds
        guard job.ticket.wait(beyond: taken, until: min(patience, ends)) else {
            refusal = .notTaken
            return false
        }
        guard !job.ticket.isCancelled else {
            refusal = .cancelled
            return false
        }
        taken += 1
        metrics.snapshotRows.add(rows.count)
        job.tell(.page(SnapshotPage(bytes: writer.copied(), rows: rows)))
        writer.removeAll()
        rows = []
        return true
    }
}

extension ChangeView {
    /// As it would be of the table's own changes.
    fileprivate init(of selection: TableSelection) {
        let table = selection.table
        let columns = selection.columns.map { table.columns[$0] }
        let relation = Relation(
            oid: table.oid, schema: table.schema, name: table.name, identity: .full,
            columns: selection.columns.map { slot in
                let column = table.columns[slot]
                return Column(
                    name: column.name, typeOID: column.typeOID, typeName: column.typeName, isIdentity: true,
                    isPrimaryKey: table.primaryKey.contains(slot))
            })
        self.init(
            relation,
            visible: columns.enumerated().map { place, column in
                VisibleColumn(index: place, typeName: column.typeName, rendering: column.rendering.value)
            })
    }
}
