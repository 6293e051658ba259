import Bytes
import Change
import EventLog
import System

/// Read access to an event log, without any lock. A writer may run at the same time.
///
/// All values from the log are masked with the `masking` that it was opened with.
public struct HistoryLog: Sendable {
    public let directory: any StorageDirectory
    public let masking: Masking
    /// Masking that the maker of a bundle applied, so that no reader can see the values; nil for a log.
    public let lost: Masking?

    public init(directory: any StorageDirectory, masking: Masking, lost: Masking? = nil) {
        self.directory = directory
        self.masking = masking
        self.lost = lost
    }

    public init(_ bundle: LogBundle, masking: Masking) {
        self.init(directory: bundle.directory, masking: masking, lost: bundle.masking)
    }

    /// Returns all segments, oldest first.
    public func segments() throws(EventLogError) -> [SegmentSummary] {
        let segments = try EventLogReader.segments(in: directory)
        if segments.isEmpty { throw .missing(path: directory.path) }
        return segments
    }

    /// Returns every schema in the log, including older ones of the same table.
    public func relations() throws(EventLogError) -> [RecordedRelation] {
        var found: [UInt64: RecordedRelation] = [:]
        var order: [UInt64] = []
        try EventLogReader.visitSchemas(in: directory) { payload, _ in
            let fingerprint = RelationCodec.fingerprint(of: payload)
            guard found[fingerprint] == nil, let relation = try? RecordedRelation(stored: payload) else { return }
            found[fingerprint] = relation
            order.append(fingerprint)
        }
        return order.compactMap { found[$0] }
    }
}

/// The header of a stored transaction or part of one.
struct TransactionHead {
    let info: TransactionInfo
    let firstIndex: UInt32

    init(_ reader: borrowing EventLogReader) throws(UnreadableEntry) {
        do {
            let part = try TransactionPart(reader.payload)
            info = part.info
            firstIndex = part.firstIndex
        } catch {
            throw UnreadableEntry(
                offset: reader.entry.offset, segment: reader.entry.segment, reason: error.description)
        }
    }
}

/// Place of a whole transaction in the log.
public struct RecordedTransaction: Sendable, Equatable {
    public var info: TransactionInfo
    public var epoch: UInt64
    public var segment: UInt64
    public var offsets: Range<UInt64>
}

/// Name by which the user asks for a transaction.
public enum TransactionName: Sendable, Hashable {
    case xid(UInt32)
    /// Position where the transaction's commit record begins or ends. A position in between matches no transaction.
    case lsn(LSN)

    /// Parses `7421`, `xid:7421`, `0/16B3748` or `lsn:0/16B3748`.
    public init?(_ text: String) {
        switch HistoryBound(text, now: 0) {
        case .xid(let xid): self = .xid(xid)
        case .lsn(let lsn): self = .lsn(lsn)
        default:
            if let lsn = LSN(text) {
                self = .lsn(lsn)
            } else if let xid = UInt32(text), text.utf8.allSatisfy({ (48...57).contains($0) }) {
                self = .xid(xid)
            } else {
                return nil
            }
        }
    }
}

extension HistoryLog {
    /// Calls `visit` for each transaction of that name, newest first, until `visit` returns false.
    ///
    /// - Parameter noting: called with the offsets that the search reaches.
    public func transactions(
        _ name: TransactionName, noting: (UInt64) -> Void = { _ in }, _ visit: (RecordedTransaction) throws -> Bool
    ) throws {
        switch name {
        case .lsn(let lsn): if let found = try transaction(at: lsn) { _ = try visit(found) }
        case .xid(let xid):
            for segment in try segments().reversed() {
                for found in try transactions(xid, in: segment, noting).reversed() {
                    guard try visit(found) else { return }
                }
            }
        }
    }

    func newestTransaction(xid: UInt32) throws -> RecordedTransaction? {
        var newest: RecordedTransaction?
        try transactions(.xid(xid)) { found in
            newest = found
            return false
        }
        return newest
    }

    private func transactions(
        _ xid: UInt32, in segment: SegmentSummary, _ noting: (UInt64) -> Void
    ) throws -> [RecordedTransaction] {
        var found: [RecordedTransaction] = []
        guard segment.changes > 0 else { return found }
        let key = RowKey.transaction(xid: xid)
        guard try EventLogReader.mayContain(key, scheme: 1, segment: segment.sequence, in: directory) else {
            return found
        }
        var reader: EventLogReader
        do {
            reader = try EventLogReader(
                directory: directory, from: .offset(segment.firstOffset), matchingAnyOf: [key])
        } catch EventLogError.outsideRetention {
            // Retention deleted the segment after the segments were listed.
            return found
        }
        while let next = try reader.nextTransaction(), next.segment <= segment.sequence {
            noting(next.offsets.lowerBound)
            if next.segment == segment.sequence, next.info.xid == xid { found.append(next) }
        }
        return found
    }

    private func transaction(at lsn: LSN) throws -> RecordedTransaction? {
        var reader = try EventLogReader(directory: directory, from: .lsn(lsn.rawValue))
        guard let first = try reader.nextTransaction() else { return nil }
        // One commit record may end where another begins. The position then names the one that begins there.
        if first.info.commitLSN != lsn, let second = try reader.nextTransaction(), second.info.commitLSN == lsn {
            return second
        }
        return first.info.commitLSN == lsn || first.info.endLSN == lsn ? first : nil
    }
}

extension EventLogReader {
    /// Returns the next transaction and moves past it. Skips other entries before it.
    mutating func nextTransaction() throws -> RecordedTransaction? {
        var first: (offset: UInt64, info: TransactionInfo)?
        while try next() {
            guard entry.kind == .transaction else { continue }
            let info = try TransactionHead(self).info
            let begin = first ?? (entry.offset, info)
            if entry.isContinued {
                first = begin
                continue
            }
            return RecordedTransaction(
                info: info, epoch: entry.epoch, segment: entry.segment,
                offsets: begin.offset..<entry.offset + UInt64(entry.changeCount))
        }
        return nil
    }
}
