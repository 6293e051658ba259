import Bytes
import Change

/// Reason why the hub sends a change without its row.
public enum ChangeRefusal: Sendable, Hashable {
    /// The role of the subscribers may not read the primary key.
    case unauthorized
    case noPrimaryKey

    var message: StaticString {
        switch self {
        case .unauthorized: "Error 401: Unauthorized"
        case .noPrimaryKey: "Error 400: Bad Request, no primary key"
        }
    }
}

/// Writer of a change's body, `{"schema":…,"old_record":…}`. One body serves all subscribers with the same view. The
/// writer converts values from PostgreSQL's text to JSON without an intermediate form.
public struct ChangeEncoder: Sendable {
    /// Largest body in bytes. For a larger change the body contains only small values.
    public let maximumBodyBytes: Int

    /// Longest JSON text, in bytes, of a value that an oversized change still contains. The reference server has the
    /// same rule.
    static let maximumSmallValueBytes = 64

    public init(maximumBodyBytes: Int) { self.maximumBodyBytes = maximumBodyBytes }

    /// Appends the body of an insert, update or delete. `commitTime` is in microseconds since 1970. Throws if the row
    /// image is damaged, and then appends nothing.
    public func append(
        _ change: borrowing Change, _ view: borrowing ChangeView, commitTime: Int64, to writer: inout ByteWriter
    ) throws(ByteError) {
        let start = writer.count
        do throws(ByteError) {
            if try Self.appendBody(change, view, commitTime, limit: start + maximumBodyBytes, &writer) { return }
            writer.truncate(to: start)
            try Self.appendLargeBody(change, view, commitTime, &writer)
        } catch {
            writer.truncate(to: start)
            throw error
        }
    }

    /// Appends the body of an insert or update whose row the subscribers may not see. Deletes are never refused.
    public func append(
        _ refusal: ChangeRefusal, of operation: Operation, _ view: borrowing ChangeView, commitTime: Int64,
        to writer: inout ByteWriter
    ) {
        assert(operation == .insert || operation == .update, "only inserts and updates are refused")
        Self.appendHead(operation, view, commitTime, &writer)
        writer.append("[\"")
        writer.append(refusal.message)
        writer.append("\"],\"columns\":[],\"record\":{}")
        writer.append(operation == .update ? ",\"old_record\":{}}" : "}")
    }

    /// Appends the body for an update after which a subscriber no longer sees the row. Only subscribers with the option
    /// `moves` get it. The body is a delete of the old row, marked as a move. If the method throws, it appends nothing.
    public func append(
        departure change: borrowing Change, _ view: borrowing ChangeView, commitTime: Int64, to writer: inout ByteWriter
    ) throws(ByteError) {
        let start = writer.count
        do throws(ByteError) {
            if try Self.appendDeparture(change, view, commitTime, limit: start + maximumBodyBytes, &writer) { return }
            writer.truncate(to: start)
            let isComplete = try Self.appendDeparture(change, view, commitTime, limit: nil, &writer)
            assert(isComplete, "a departure without a limit is written to its end")
        } catch {
            writer.truncate(to: start)
            throw error
        }
    }

    /// Writes the body of an update after which a subscriber no longer sees the row. If `limit` is nil, writes small
    /// values only. Returns false if the body exceeds the limit.
    private static func appendDeparture(
        _ change: borrowing Change, _ view: borrowing ChangeView, _ commitTime: Int64, limit: Int?,
        _ writer: inout ByteWriter
    ) throws(ByteError) -> Bool {
        appendHead(.delete, view, commitTime, &writer)
        writer.append(limit == nil ? "[\"Error 413: Payload Too Large\"]," : "null,")
        // SAFETY: any byte is a valid UInt8, and the span lives as long as the view's text.
        writer.append(unsafe view.text.span.bytes.extracting(view.columnList))
        writer.append(",\"old_record\":{")
        if let old = change.old {
            let rows = RowWriter(view, limit: limit ?? .max, smallOnly: limit == nil)
            guard try rows.append(old, .all, &writer) else { return false }
        }
        writer.append("},\"tidewire\":{\"moved\":\"out\"}}")
        return limit.map { writer.count <= $0 } ?? true
    }

    /// Reason why a subscriber gets an existing row, as the member `tidewire` of its body states it.
    public enum ExistingRow: Sendable {
        /// The subscriber gets all rows.
        case snapshot
        /// The row has come into the subscriber's sight.
        case entering

        fileprivate var text: StaticString {
            switch self {
            case .snapshot: "{\"snapshot\":true}"
            case .entering: "{\"moved\":\"in\"}"
            }
        }
    }

    /// Appends the body for an existing row. The body is an insert, marked with the reason. With `isTooLarge` the row
    /// lacks values that are too large to send. If the method throws, it appends nothing.
    public func append(
        existing row: borrowing Tuple, _ reason: ExistingRow, _ view: borrowing ChangeView, readAt time: Int64,
        isTooLarge: Bool, to writer: inout ByteWriter
    ) throws(ByteError) {
        let start = writer.count
        do throws(ByteError) {
            let limit = start + maximumBodyBytes
            if !isTooLarge, try Self.appendExisting(row, reason, view, time, limit: limit, &writer) { return }
            writer.truncate(to: start)
            let isComplete = try Self.appendExisting(row, reason, view, time, limit: nil, &writer)
            assert(isComplete, "a row without a limit is written to its end")
        } catch {
            writer.truncate(to: start)
            throw error
        }
    }

    /// Writes the body for a snapshot row. If `limit` is nil, writes small values only. Returns false if the body
    /// exceeds the limit.
    private static func appendExisting(
        _ row: borrowing Tuple, _ reason: ExistingRow, _ view: borrowing ChangeView, _ time: Int64, limit: Int?,
        _ writer: inout ByteWriter
    ) throws(ByteError) -> Bool {
        appendHead(.insert, view, time, &writer)
        writer.append(limit == nil ? "[\"Error 413: Payload Too Large\"]," : "null,")
        // SAFETY: any byte is a valid UInt8, and the span lives as long as the view's text.
        writer.append(unsafe view.text.span.bytes.extracting(view.columnList))
        writer.append(",\"record\":{")
        let rows = RowWriter(view, limit: limit ?? .max, smallOnly: limit == nil)
        guard try rows.append(row, .all, &writer) else { return false }
        writer.append("},\"tidewire\":")
        writer.append(reason.text)
        writer.append("}")
        return limit.map { writer.count <= $0 } ?? true
    }

    /// Writes the beginning of a change's body, up to and including `"errors":`.
    private static func appendHead(
        _ operation: Operation, _ view: borrowing ChangeView, _ commitTime: Int64, _ writer: inout ByteWriter
    ) {
        let head =
            switch operation {
            case .insert: view.heads.insert
            case .update: view.heads.update
            case .delete: view.heads.delete
            case .truncate, .message: preconditionFailure("only changes of rows have a body")
            }
        // SAFETY: any byte is a valid UInt8, and the span lives as long as the view's text.
        writer.append(unsafe view.text.span.bytes.extracting(head))
        CommitTimestamp.append(commitTime, to: &writer)
        writer.append("\",\"errors\":")
    }

    /// Writes the body of a change. Returns false if the body exceeds the limit in bytes.
    private static func appendBody(
        _ change: borrowing Change, _ view: borrowing ChangeView, _ commitTime: Int64, limit: Int,
        _ writer: inout ByteWriter
    ) throws(ByteError) -> Bool {
        appendHead(change.operation, view, commitTime, &writer)
        writer.append("null,")
        // SAFETY: as above.
        writer.append(unsafe view.text.span.bytes.extracting(view.columnList))
        return try appendRows(change, RowWriter(view, limit: limit, smallOnly: false), &writer)
    }

    private static func appendLargeBody(
        _ change: borrowing Change, _ view: borrowing ChangeView, _ commitTime: Int64, _ writer: inout ByteWriter
    ) throws(ByteError) {
        appendHead(change.operation, view, commitTime, &writer)
        writer.append("[\"Error 413: Payload Too Large\"],")
        // SAFETY: as above.
        writer.append(unsafe view.text.span.bytes.extracting(view.columnList))
        let isComplete = try appendRows(change, RowWriter(view, limit: .max, smallOnly: true), &writer)
        assert(isComplete, "rows without a limit are written to their end")
    }

    /// Writes the rows of a change: a new row except for a delete, an old row except for an insert.
    private static func appendRows(
        _ change: borrowing Change, _ rows: borrowing RowWriter, _ writer: inout ByteWriter
    ) throws(ByteError) -> Bool {
        if let new = change.new {
            writer.append(",\"record\":{")
            // PostgreSQL does not send large values that an update left unchanged. A full old row has them.
            if change.oldImage == .full, let old = change.old {
                guard try rows.append(new, filledFrom: old, &writer) else { return false }
            } else {
                guard try rows.append(new, .all, &writer) else { return false }
            }
            writer.append("}")
        }
        if change.operation != .insert {
            writer.append(",\"old_record\":{")
            guard try appendOldRow(change, rows, &writer) else { return false }
            writer.append("}")
        }
        writer.append("}")
        return true
    }

    /// Writes the old row. If PostgreSQL sent no old row, the key columns did not change, so they are taken from the
    /// new row.
    private static func appendOldRow(
        _ change: borrowing Change, _ rows: borrowing RowWriter, _ writer: inout ByteWriter
    ) throws(ByteError) -> Bool {
        let isDelete = change.operation == .delete
        guard let old = change.old else {
            guard let new = change.new else { return true }
            return try rows.append(new, .identity, &writer)
        }
        switch change.oldImage {
        case .full: return try rows.append(old, isDelete ? .deleted : .replaced, &writer)
        case .key, .none: return try rows.append(old, isDelete ? .deletedIdentity : .replacedIdentity, &writer)
        }
    }
}

/// Writer of commit times: `2026-03-01T10:20:30.456Z`, always with three digits after the seconds.
enum CommitTimestamp {
    /// Milliseconds since 1970 whose year has four digits: from the year 0 to the end of 9999.
    private static let writable: ClosedRange<Int64> = -62_167_219_200_000...253_402_300_799_999

    static func append(_ microseconds: Int64, to writer: inout ByteWriter) {
        let rounded = microseconds / 1000 - (microseconds % 1000 < 0 ? 1 : 0)
        let time = min(max(rounded, writable.lowerBound), writable.upperBound)
        let days = (time - (time < 0 ? 86_399_999 : 0)) / 86_400_000
        let rest = time - days * 86_400_000
        let (year, month, day) = civil(daysSince1970: days)
        assert((0..<86_400_000).contains(rest), "a time of day lies within its day")
        assert((1...12).contains(month) && (1...31).contains(day), "a date has a month and a day of the calendar")
        appendTwo(year / 100, to: &writer)
        appendTwo(year % 100, to: &writer)
        writer.append(UInt8(ascii: "-"))
        appendTwo(month, to: &writer)
        writer.append(UInt8(ascii: "-"))
        appendTwo(day, to: &writer)
        writer.append(UInt8(ascii: "T"))
        appendTwo(rest / 3_600_000, to: &writer)
        writer.append(UInt8(ascii: ":"))
        appendTwo(rest / 60_000 % 60, to: &writer)
        writer.append(UInt8(ascii: ":"))
        appendTwo(rest / 1000 % 60, to: &writer)
        writer.append(UInt8(ascii: "."))
        writer.append(48 + UInt8(truncatingIfNeeded: rest % 1000 / 100))
        appendTwo(rest % 100, to: &writer)
        writer.append(UInt8(ascii: "Z"))
    }

    /// Writes a number as two digits.
    private static func appendTwo(_ number: Int64, to writer: inout ByteWriter) {
        assert((0...99).contains(number), "a number of two digits is below 100")
        let tens = UInt16(truncatingIfNeeded: number / 10 % 10)
        let ones = UInt16(truncatingIfNeeded: number % 10)
        writer.append(little: 0x3030 + tens + ones << 8)
    }

    /// Returns the date in the proleptic Gregorian calendar. The calculation counts cycles of 400 years that begin in
    /// March, so that a leap day is the last day of its year.
    private static func civil(daysSince1970 days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let shifted = days + 719_468
        let era = (shifted - (shifted < 0 ? 146_096 : 0)) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
        let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, day)
    }
}
