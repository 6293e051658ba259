import Bytes
import Change
import Diagnostics
import EventLog
import System

/// Log of the benchmark `incident`: changes of one table's rows, as the hub's ingest writes them. The log is so large
/// that a question must not read it completely.
struct IncidentLog {
    static let changesOfTransaction = 20
    static let versionsOfRow = 10

    let directory: any StorageDirectory
    let changes: Int

    var rows: Int { changes / Self.versionsOfRow }
    var transactions: Int { changes / Self.changesOfTransaction }

    static let relation = Relation(
        oid: 16_400, schema: "public", name: "orders", identity: .full,
        columns: [
            Column(name: "id", typeOID: 20, typeName: "int8", isIdentity: true, isPrimaryKey: true),
            Column(name: "owner", typeOID: 2950, typeName: "uuid", isIdentity: true, isPrimaryKey: false),
            Column(name: "state", typeOID: 25, typeName: "text", isIdentity: true, isPrimaryKey: false),
            Column(name: "version", typeOID: 23, typeName: "int4", isIdentity: true, isPrimaryKey: false),
        ])

    /// Returns the row that a change writes, and the number of the row's version. The versions of a row in the lower
    /// half of the ids lie close together in the log; those of the other rows are spread over it.
    private func row(of change: Int) -> (id: Int, version: Int) {
        let half = changes / 2
        guard change % 2 == 1 else {
            let place = change / 2
            return (place / Self.versionsOfRow, place % Self.versionsOfRow)
        }
        let spread = rows - rows / 2
        let place = change / 2
        assert(place < half, "each second change is of a row with versions all over")
        return (rows / 2 + place % spread, place / spread)
    }

    /// Number of a row whose versions are close together in the log.
    var gathered: Int { rows / 4 }
    /// Number of a row whose versions are spread over the log.
    var scattered: Int { rows / 2 + rows / 4 }

    func write(_ progress: (Int) -> Void) throws {
        var options = EventLogOptions(source: 1)
        options.keyScheme = RowKey.scheme
        options.preparesSegments = false
        let writer = try EventLogWriter(directory: directory, options: options)
        var schema = ByteWriter()
        RelationCodec.encode(Self.relation, to: &schema)
        let fingerprint = RelationCodec.fingerprint(of: schema.bytes)
        var writtenIn: UInt64?
        var attendance = IncidentAttendance()
        var transaction = Transaction()
        for number in 0..<transactions {
            fill(&transaction, number, fingerprint)
            let info = transaction.info
            try writer.rollIfNeeded(adding: transaction.payload.count + schema.count)
            if writer.segmentSequence != writtenIn {
                try writer.append(
                    kind: .relation, lsn: writer.appendedLSN, time: info.commitTime, payload: schema.bytes)
                writtenIn = writer.segmentSequence
            }
            if let notes = attendance.notes(
                before: number, of: transactions, at: writer.nextOffset, info.commitTime)
            {
                try writer.append(
                    kind: .ledger, lsn: writer.appendedLSN, time: info.commitTime, payload: notes.payload.bytes,
                    keys: notes.keys.span)
            }
            try writer.append(
                kind: .transaction, changeCount: UInt32(Self.changesOfTransaction), lsn: info.endLSN.rawValue,
                time: info.commitTime, payload: transaction.payload.bytes, keys: transaction.keys.span)
            if number % 5000 == 0 {
                try writer.flush()
                progress(number * Self.changesOfTransaction)
            }
        }
        try writer.flush()
    }

    private struct Transaction: ~Copyable {
        var info = TransactionInfo(xid: 0, commitLSN: LSN(0), endLSN: LSN(0), commitTime: 0)
        var payload = ByteWriter()
        var keys: [UInt64] = []
    }

    private static let tableKey = RowKey.table(schema: relation.schema, name: relation.name)
    /// Unix microseconds of the first commit. One commit follows in each millisecond.
    private static let begin: Int64 = 1_760_000_000_000_000

    private func fill(_ transaction: inout Transaction, _ number: Int, _ fingerprint: UInt64) {
        let lsn = UInt64(number + 1) * 0x1000
        transaction.info = TransactionInfo(
            xid: UInt32(number + 1), commitLSN: LSN(lsn), endLSN: LSN(lsn + 0x30),
            commitTime: Self.begin + Int64(number) * 1000)
        transaction.payload.removeAll()
        transaction.keys = [RowKey.transaction(xid: transaction.info.xid), Self.tableKey]
        var old = ByteWriter()
        var new = ByteWriter()
        TransactionCodec.begin(transaction.info, firstIndex: 0, to: &transaction.payload)
        let first = number * Self.changesOfTransaction
        for change in first..<first + Self.changesOfTransaction {
            let row = row(of: change)
            Self.write(row.id, row.version, to: &new)
            transaction.keys.append(RowKey.row(table: Self.tableKey, key: [String(row.id)]))
            guard row.version > 0 else {
                TransactionCodec.append(
                    .insert, relation: fingerprint, oldImage: .none, old: RawSpan(), new: new.bytes,
                    to: &transaction.payload)
                continue
            }
            Self.write(row.id, row.version - 1, to: &old)
            TransactionCodec.append(
                .update, relation: fingerprint, oldImage: .full, old: old.bytes,
                new: new.bytes, to: &transaction.payload)
        }
        TransactionCodec.finish(
            endLSN: transaction.info.endLSN, changeCount: UInt32(Self.changesOfTransaction), in: &transaction.payload)
    }

    private static func write(_ id: Int, _ version: Int, to writer: inout ByteWriter) {
        writer.removeAll()
        writer.append(big: UInt16(4))
        let owner = "00000000-0000-4000-8000-" + String(1_000_000_000_000 + id).suffix(12)
        for text in ["\(id)", owner, version % 2 == 0 ? "open" : "being looked at", "\(version)"] {
            writer.append(UInt8(ascii: "t"))
            writer.append(big: UInt32(text.utf8.count))
            writer.append(Array(text.utf8))
        }
    }
}
