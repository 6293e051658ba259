import Bytes
import Catalog
import Change
import Diagnostics
import Protocol
import System

/// Converter of a snapshot's rows to pages of change bodies. It passes on one page each time that the client's side
/// asks.
final class SnapshotPages {
    private let job: SnapshotJob
    private let encoder: ChangeEncoder
    private let readAt: Int64
    private let metrics: ProjectMetrics
    private let ends: UInt64
    private var taken: UInt64 = 0
    private var selection = 0
    private var view: ChangeView
    /// Indices of selected columns whose values may be too large.
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

    /// Starts the rows of the query with index `selection` in `SnapshotRequest.selections`. The rows that follow belong
    /// to it.
    func begin(_ selection: Int) {
        self.selection = selection
        let wanted = job.request.selections[selection]
        view = ChangeView(of: wanted)
        largePlaces = wanted.columns.indices.filter { wanted.isLarge(wanted.columns[$0]) }
    }

    /// Adds a row to the current page. Returns false if no more rows may be read; `refusal` has the reason.
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

    /// Writes a row. Its first value tells which other values PostgreSQL omitted because they are too large.
    private func append(_ tuple: RawSpan) throws(ByteError) {
        var values = Tuple(tuple).columns()
        guard case .text(let marks)? = try values.next() else {
            throw ByteError(expected: "marks of large values", offset: 0)
        }
        let isTooLarge = (0..<marks.byteCount).contains { marks.byte($0) == UInt8(ascii: "1") }
        // The rest of the tuple has the format of a row, without the number of columns.
        let rest = tuple.extracting(droppingFirst: values.offset)
        var row = ByteWriter(capacity: rest.byteCount + 2)
        row.append(big: UInt16(truncatingIfNeeded: values.remaining))
        if isTooLarge { try appendWithout(marks, &values, &row) } else { row.append(rest) }
        try encoder.append(
            existing: Tuple(row.bytes), job.request.reason, view, readAt: readAt, isTooLarge: isTooLarge, to: &writer)
    }

    /// Writes a row without the values that are too large. They become absent, not NULL.
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

    /// Passes on the last page.
    func finish() throws(SnapshotRefusal) {
        if !rows.isEmpty, !hand(), let refusal { throw refusal }
    }

    /// Passes on a page when the receiver has asked for it. Returns false if that takes too long.
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
    /// Creates the view of the table's columns with which the encoder writes a snapshot row like an ordinary change.
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
