import Bytes
import Change
import Diagnostics
import EventLog
import System
import TestSupport
import Testing

@testable import Delivery

/// Tests of the search for earlier versions of a row, and of the memory of its results after a search that was given
/// up.
@Suite(.within(minutes: 1)) struct RecallSearchTests {
    private static let relation = Relation(
        oid: 16_400, schema: "public", name: "notes", identity: .primaryKey,
        columns: [
            Column(name: "id", typeOID: 23, typeName: "int4", isIdentity: true, isPrimaryKey: true),
            Column(name: "body", typeOID: 25, typeName: "text", isIdentity: false, isPrimaryKey: false),
        ])

    private static let schema: [UInt8] = {
        var writer = ByteWriter()
        RelationCodec.encode(relation, to: &writer)
        return writer.copied()
    }()

    private static let fingerprint = RelationCodec.fingerprint(of: schema.asBytes)

    /// Clock that moves forward with each reading.
    private final class SteppingTime: TimeSource, @unchecked Sendable {
        // Only one thread uses the clock.
        private var passed: UInt64 = 0
        private let step: UInt64

        init(step: UInt64) { self.step = step }

        func monotonicNanoseconds() -> UInt64 {
            passed += step
            return passed
        }

        func unixMicroseconds() -> Int64 { 0 }
        var boot: UInt64 { 1 }
    }

    /// Log with one segment for each of the given changes of a row.
    private final class Log {
        private typealias Here = RecallSearchTests

        let directory = MemoryDirectory()
        private let writer: EventLogWriter
        private var lsn: UInt64 = 0x1000

        init() throws {
            var options = EventLogOptions(source: 1)
            options.preparesSegments = false
            options.keyScheme = RowKey.scheme
            options.retentionAge = nil
            writer = try EventLogWriter(directory: directory, options: options)
        }

        func append(_ operation: Operation, old: [String?]? = nil, new: [String?]? = nil) throws {
            if lsn > 0x1000 { try writer.roll() }
            _ = try writer.append(kind: .relation, lsn: lsn, time: 1, payload: Here.schema.asBytes)
            var payload = ByteWriter()
            let info = TransactionInfo(xid: 1, commitLSN: LSN(lsn), endLSN: LSN(lsn + 8), commitTime: 1)
            TransactionCodec.begin(info, firstIndex: 0, to: &payload)
            let (former, current) = (old.map(Here.tuple) ?? [], new.map(Here.tuple) ?? [])
            TransactionCodec.append(
                operation, relation: Here.fingerprint, oldImage: old == nil ? .none : .key, old: former.asBytes,
                new: current.asBytes, options: 0, to: &payload)
            TransactionCodec.finish(endLSN: info.endLSN, changeCount: 1, in: &payload)
            // With this key, the search must assume that the segment may have any row of the table.
            let keys = [RowKey.unkeyed(table: RowKey.table(schema: "public", name: "notes"))]
            _ = try writer.append(
                kind: .transaction, changeCount: 1, lsn: lsn + 8, time: 1, payload: payload.bytes, keys: keys.span)
            try writer.flush()
            lsn += 0x10
        }
        /// Returns the log's answer about row 1, for everything in the log.
        func find(step: UInt64) throws -> RecallAnswer? {
            let state = writer.end.state
            let key = Here.tuple(["1", nil])
            guard let columns = RowColumns(["id"], in: Here.relation), let id = try columns.id(of: key.asTuple) else {
                return nil
            }
            var request = RecallRequest(
                segment: state.segment, position: state.segmentBytes, end: state.segmentBytes, changes: 0)
            request.relations = [Here.fingerprint: Here.relation]
            request.rows = [RecallRequest.Row(id: id, relation: Here.fingerprint, key: key)]
            let directory = directory
            let lookup = RecallLookup(SteppingTime(step: step), ProjectMetrics()) { () throws(SystemError) in
                directory
            }
            return lookup.answers(request, isLastTry: true)?.first
        }
    }

    /// Returns a row image in PostgreSQL's form. A nil is a large value that did not change.
    private static func tuple(_ values: [String?]) -> [UInt8] {
        var writer = ByteWriter()
        writer.append(big: UInt16(values.count))
        for value in values {
            guard let value else {
                writer.append(UInt8(ascii: "u"))
                continue
            }
            writer.append(UInt8(ascii: "t"))
            writer.append(big: UInt32(value.utf8.count))
            writer.append(value)
        }
        return writer.copied()
    }

    private static func log() throws -> Log {
        let log = try Log()
        try log.append(.insert, new: ["1", "a large value"])
        try log.append(.update, new: ["1", nil])
        return log
    }

    @Test func `a value that an update left alone comes from an older version`() throws {
        guard case .version(_, _, let found)? = try Self.log().find(step: 0) else {
            Issue.record("no version was found")
            return
        }
        #expect(found == Self.tuple(["1", "a large value"]))
    }

    /// Checks a version without all its values: the search must not treat it as the only one in the log.
    @Test func `a search that is given up before it has all values has not read the row`() throws {
        let step = Limits.recallPatience.wholeNanoseconds / 3
        guard case .unread? = try Self.log().find(step: step) else {
            Issue.record("the row counts as read")
            return
        }
    }

    /// Checks a row that could not be read: the memory must not treat it as missing from the log.
    @Test func `the log is asked again for the next change of a row that could not be read`() throws {
        let metrics = ProjectMetrics()
        var recall = RowRecall(metrics.recalls)
        recall.watch(Self.relation.oid)
        func pass(
            _ operation: Operation, old: [String?]?, new: [String?]?, mayAsk: Bool
        ) throws -> RowRecall.Past {
            var payload = ByteWriter()
            let info = TransactionInfo(xid: 1, commitLSN: LSN(8), endLSN: LSN(16), commitTime: 1)
            TransactionCodec.begin(info, firstIndex: 0, to: &payload)
            let (former, current) = (old.map(Self.tuple) ?? [], new.map(Self.tuple) ?? [])
            TransactionCodec.append(
                operation, relation: Self.fingerprint, oldImage: old == nil ? .none : .key, old: former.asBytes,
                new: current.asBytes, options: 0, to: &payload)
            TransactionCodec.finish(endLSN: info.endLSN, changeCount: 1, in: &payload)
            var part = try TransactionPart(payload.bytes)
            guard let change = try part.next() else { preconditionFailure("a change was written") }
            return try recall.pass(
                change, Self.relation, isWaiting: true, isNeeded: true, mayAsk: mayAsk, isBroken: false)
        }
        func isUnknown(_ past: RowRecall.Past) -> Bool { if case .unknown = past { true } else { false } }
        #expect(isUnknown(try pass(.update, old: nil, new: ["1", nil], mayAsk: true)))
        let columns = try #require(RowColumns(["id"], in: Self.relation))
        let key = Self.tuple(["1", nil])
        let id = try #require(try columns.id(of: key.asTuple))
        for answer in [RecallAnswer.unread, .missing] {
            var request = RecallRequest(segment: 1, position: 0, end: 0, changes: 0)
            request.rows = [RecallRequest.Row(id: id, relation: Self.fingerprint, key: key)]
            recall.fill(request, [answer])
            #expect(!isUnknown(try pass(.update, old: nil, new: ["1", nil], mayAsk: false)))
            let isAskedAgain = isUnknown(try pass(.delete, old: ["1", nil], new: nil, mayAsk: true))
            if case .unread = answer { #expect(isAskedAgain) } else { #expect(!isAskedAgain) }
        }
    }
}
