import Bytes
import Change
import EventLog

/// Access to the log's records of single deliveries. A hub writes them with the setting `ledger = full`.
extension HistoryLog {
    /// Calls `visit` for each recorded delivery of one change, in the order of the log. The cost depends on the number
    /// of deliveries of nearby changes.
    public func deliveries(of offset: UInt64, _ visit: (DeliveryBlock.Delivery) -> Void) throws {
        let region = RowKey.deliveries(region: DeliveryBlock.region(of: offset))
        var reader = try EventLogReader(directory: directory, from: .offset(offset), matchingAnyOf: [region])
        while try reader.next() {
            for note in try deliveryNotes(of: reader) where note.offset <= offset && offset < note.received {
                try read(note, reader.entry, { $0 == offset }, visit)
            }
        }
    }

    /// Calls `visit` for each delivery that was made in a window, of changes in the window or before it, in the order
    /// of the log.
    public func deliveries(
        from: HistoryBound?, to: HistoryBound?, _ visit: (DeliveryBlock.Delivery) -> Void
    ) throws {
        let window = try window(from: from, to: to)
        var reader = try EventLogReader(directory: directory, from: window.start, matchingAnyOf: [RowKey.deliveries])
        while try reader.next() {
            let entry = reader.entry
            if entry.offset > window.endOffset || entry.segment > window.lastSegment { return }
            guard entry.offset >= window.firstOffset else { continue }
            for note in try deliveryNotes(of: reader) {
                try read(note, entry, { _ in true }) { delivery in
                    if delivery.time >= window.firstTime, delivery.time < window.endTime { visit(delivery) }
                }
            }
        }
    }

    /// Calls `visit` for each delivery of the changes in a range of offsets, at any time, in the order of the log.
    public func deliveries(of offsets: Range<UInt64>, _ visit: (DeliveryBlock.Delivery) -> Void) throws {
        guard !offsets.isEmpty else { return }
        var reader = try EventLogReader(
            directory: directory, from: .offset(offsets.lowerBound), matchingAnyOf: [RowKey.deliveries])
        while try reader.next() {
            for note in try deliveryNotes(of: reader)
            where note.offset < offsets.upperBound && offsets.lowerBound < note.received {
                try read(note, reader.entry, { offsets.contains($0) }, visit)
            }
        }
    }

    private func deliveryNotes(of reader: borrowing EventLogReader) throws(UnreadableEntry) -> [LedgerNote] {
        let entry = reader.entry
        guard entry.kind == .ledger else { return [] }
        do throws(ByteError) {
            return try LedgerCodec.decode(reader.payload) { $0 == .delivered }
        } catch {
            throw UnreadableEntry(offset: entry.offset, segment: entry.segment, reason: error.description)
        }
    }

    private func read(
        _ note: LedgerNote, _ entry: EventLogEntry, _ wants: (UInt64) -> Bool,
        _ visit: (DeliveryBlock.Delivery) -> Void
    ) throws(UnreadableEntry) {
        do throws(ByteError) {
            // SAFETY: any byte is a valid UInt8, and the note outlives the call.
            try DeliveryBlock.read(unsafe note.deliveries.span.bytes, from: note.time, of: wants, visit)
        } catch {
            throw UnreadableEntry(offset: entry.offset, segment: entry.segment, reason: error.description)
        }
    }
}

/// Channels to which a change was sent, according to the recorded deliveries.
public struct DeliveryRecord: Sendable {
    public enum Finding: Sendable, Equatable {
        /// Deliveries to the channel are not recorded, or the channel had ended. Only other notes can show if it
        /// received the change.
        case none
        case sent(at: Int64)
        /// The log has all deliveries to the channel, and the change is not among them.
        case notSent
        /// Unknown, because a part of the record is missing or not written yet.
        case unknown
    }

    private struct Key: Hashable {
        var session: UInt64
        var channel: UInt32
    }

    private let offset: UInt64
    /// Unix time in microseconds of the first delivery to each channel.
    private var times: [Key: Int64] = [:]

    public init(of change: RecordedChange, in log: HistoryLog) throws {
        offset = change.offset
        var times: [Key: Int64] = [:]
        try log.deliveries(of: offset) { delivery in
            let key = Key(session: delivery.session, channel: delivery.channel)
            times[key] = times[key] ?? delivery.time
        }
        self.times = times
    }

    /// Number of channels to which the change was sent.
    public var count: Int { times.count }

    public func finding(_ attendance: Attendance, of book: AttendanceBook) -> Finding {
        let time = times[Key(session: attendance.session, channel: attendance.channel)]
        return Self.finding(of: offset, sentAt: time, attendance, of: book)
    }

    /// Returns the finding for a change and a channel.
    ///
    /// - Parameter time: time of the first recorded delivery of the change to the channel; nil if there is none.
    public static func finding(
        of offset: UInt64, sentAt time: Int64?, _ attendance: Attendance, of book: AttendanceBook
    ) -> Finding {
        // The hub never sent a change that it matched after the socket stopped accepting data.
        if case .left(let before, _, _, _) = attendance.end, offset >= before { return .none }
        if let time { return .sent(at: time) }
        guard attendance.joined.note.isRecorded else { return .none }
        guard !book.lacksDeliveries(of: offset, to: attendance.session) else { return .unknown }
        switch attendance.end {
        case .none: return book.hasReached(offset, attendance) ? .notSent : .unknown
        case .left: return .notSent
        case .cut(let sentBefore, _, _), .missed(let sentBefore, _, _): return offset < sentBefore ? .notSent : .unknown
        }
    }
}
