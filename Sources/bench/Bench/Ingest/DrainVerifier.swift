import Bytes
import Change
import EventLog
import Ingest
import Server
import System

/// Verifier of the log that the hub wrote from the WAL of an `IngestShape`. The log must have every row once, whole
/// transactions, offsets without a hole, and correct checksums. Otherwise the measured time means nothing.
struct DrainVerifier {
    let shape: IngestShape

    private struct Found {
        var seen: [Bool]
        var rows = 0
        var transactions = 0
        var markers = 0
        var nextOffset: UInt64 = 0
        var lastKey = 0
        var rowsBefore = 0
        var table: UInt64 = 0
    }

    func verify(dataDirectory: String) throws {
        let directory = try DiskDirectory(IngestService.Settings.logDirectory(dataDirectory))
        for report in try EventLogVerifier.verify(directory) where !report.problems.isEmpty {
            throw void("segment \(report.sequence) of the log has problems: \(report.problems)")
        }
        var found = Found(seen: [Bool](repeating: false, count: shape.rows + 1))
        var reader = try EventLogReader(directory: directory)
        while try reader.next() { try look(at: reader.entry, reader.payload, &found) }
        guard found.rows == shape.rows, found.transactions == shape.transactions, found.markers <= 1 else {
            throw void(
                "the log holds \(found.rows) changes in \(found.transactions) transactions instead of "
                    + "\(shape.rows) in \(shape.transactions)")
        }
    }

    private func look(at entry: EventLogEntry, _ payload: RawSpan, _ found: inout Found) throws {
        switch entry.kind {
        case .relation:
            if try RelationCodec.decode(payload).name == shape.table {
                found.table = RelationCodec.fingerprint(of: payload)
            }
        case .transaction:
            guard entry.offset == found.nextOffset else {
                throw void("offset \(found.nextOffset) is followed by \(entry.offset)")
            }
            found.nextOffset += UInt64(entry.changeCount)
            try count(payload, &found)
            if !entry.isContinued { try endTransaction(&found) }
        default: break
        }
    }

    private func count(_ payload: RawSpan, _ found: inout Found) throws {
        var part = try TransactionPart(payload)
        while let change = try part.next() {
            guard change.relation == found.table else {
                found.markers += 1
                continue
            }
            guard let new = change.new, case .text(let text)? = try new.value(at: 0), let key = Self.number(text),
                (1...shape.rows).contains(key), !found.seen[key],
                shape.kind == .fullUpdates || key == found.lastKey + 1
            else { throw void("a row is missing, doubled or out of order after key \(found.lastKey)") }
            if shape.kind == .fullUpdates, change.oldImage != .full { throw void("an update without its old row") }
            found.seen[key] = true
            found.lastKey = key
            found.rows += 1
        }
    }

    private func endTransaction(_ found: inout Found) throws {
        let rows = found.rows - found.rowsBefore
        found.rowsBefore = found.rows
        // The marker's row has a transaction of its own.
        if rows == 0 { return }
        guard rows == shape.rowsPerTransaction else { throw void("a transaction has \(rows) changes") }
        found.transactions += 1
    }

    private static func number(_ text: RawSpan) -> Int? {
        var value = 0
        for at in 0..<text.byteCount {
            let digit = Int(text.byte(at)) - 48
            guard (0...9).contains(digit), value < 1 << 50 else { return nil }
            value = value * 10 + digit
        }
        return value
    }

    private func void(_ why: String) -> BenchFailure { BenchFailure("void (\(shape.name)): \(why)") }
}
