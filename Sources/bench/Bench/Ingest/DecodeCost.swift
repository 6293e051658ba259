import Bytes
import Change
import Embedded
import Postgres
import Replication
import System

/// Measurement of the processor time for decoding a row, without network and disk. A captured replication stream goes
/// through decoder and assembler into the stored form. Then each change is read from that form, and its row is written
/// as JSON.
struct DecodeCost {
    /// Number of rows. They fit into the processor's caches, as a row that was just received would.
    static let rows = 4000

    private let stream: CapturedStream
    private let spool: DiskDirectory

    init(_ stage: IngestStage, _ shape: IngestShape, _ place: Workplace) throws {
        stream = try CapturedStream(stage, shape, rows: min(Self.rows, shape.rows))
        spool = try place.directory("spool")
    }

    var wireBytesPerRow: Double { Double(stream.bytes) / Double(stream.rows) }

    /// Returns the nanoseconds of processor time per row for only copying the stream, byte by byte: the baseline.
    func measureCopying(passes: Int) -> Double {
        var copy = ByteWriter(capacity: stream.bytes)
        stream.copy(to: &copy)
        let began = Clock.threadNanoseconds()
        for _ in 0..<passes { stream.copy(to: &copy) }
        return Double(Clock.threadNanoseconds() - began) / Double(stream.rows * passes)
    }

    /// Returns the nanoseconds of processor time per row for decoding, and also for writing JSON if `asJSON` is true.
    func measure(passes: Int, asJSON: Bool) throws -> Double {
        let sink = RenderingSink(asJSON: asJSON)
        var assembler = TransactionAssembler(spoolDirectory: spool) { _ in ["id"] }
        try stream.feed(&assembler, sink)
        let began = Clock.threadNanoseconds()
        for _ in 0..<passes { try stream.feed(&assembler, sink) }
        let spent = Clock.threadNanoseconds() - began
        guard sink.rows == stream.rows * (passes + 1) else {
            throw BenchFailure("void (decode): \(sink.rows) rows came out of \(stream.rows * (passes + 1))")
        }
        return Double(spent) / Double(stream.rows * passes)
    }
}

/// Replication messages of several whole transactions, as they were received from PostgreSQL.
private struct CapturedStream {
    private var content: [UInt8] = []
    /// Offset of each message's end in `content`.
    private var ends: [Int] = []
    private(set) var rows = 0
    private(set) var bytes = 0

    init(_ stage: IngestStage, _ shape: IngestShape, rows wanted: Int) throws {
        let connection = try Connection(stage.cluster.target(), purpose: .replication)
        try stage.withSlot(shape) { slot, position in
            let start = StartReplication(
                slot: slot, startLSN: position.rawValue,
                options: [("proto_version", "1"), ("publication_names", shape.publication)])
            var stream = try ReplicationStream(connection, start)
            try read(&stream, wanted, interrupt: Wake())
        }
    }

    private mutating func read(_ stream: inout ReplicationStream, _ wanted: Int, interrupt: Wake) throws {
        while true {
            while let message = try stream.next() {
                if try take(message, wanted) { return }
            }
            guard stream.wait(interrupt: interrupt, timeoutMilliseconds: 10_000).socket else {
                throw BenchFailure("the stream to be captured stopped")
            }
            try stream.receive()
        }
    }

    /// Adds a replication message. Returns true if there are at least `wanted` rows and the last transaction is
    /// complete.
    private mutating func take(_ message: RawSpan, _ wanted: Int) throws -> Bool {
        var reader = ByteReader(message)
        guard try reader.uint8() == UInt8(ascii: "w") else { return false }
        try reader.skip(24)
        let content = reader.rest()
        self.content += content.copied()
        ends.append(self.content.count)
        if content.byte(0) == UInt8(ascii: "I") {
            rows += 1
            // The size includes the five bytes that PostgreSQL puts before every message.
            bytes += message.byteCount + 5
        }
        return content.byte(0) == UInt8(ascii: "C") && rows >= wanted
    }

    func copy(to writer: inout ByteWriter) {
        writer.removeAll()
        for byte in content { writer.append(byte) }
    }

    /// Passes all messages to the assembler, which hands the stored transactions to `sink`.
    func feed(_ assembler: inout TransactionAssembler, _ sink: RenderingSink) throws {
        // SAFETY: any byte is a valid UInt8.
        let bytes = unsafe content.span.bytes
        let ends = ends.span
        var start = 0
        for index in ends.indices {
            try assembler.receive(bytes.extracting(start..<ends[index]), into: sink) { throw $0 }
            start = ends[index]
        }
    }
}

/// Sink that accepts stored transactions in place of the log, and writes their rows as JSON, as a socket loop does.
private final class RenderingSink: TransactionSink {
    private let asJSON: Bool
    private var renderer: (fingerprint: UInt64, record: RecordJSON)?
    private(set) var rows = 0
    private(set) var jsonBytes = 0
    private var output = ByteWriter(capacity: 4 << 20)

    init(asJSON: Bool) { self.asJSON = asJSON }

    func append(_ part: borrowing StorablePart) throws {
        guard asJSON else {
            rows += Int(part.changeCount)
            return
        }
        for schema in part.schemas where renderer?.fingerprint != schema.fingerprint {
            renderer = (schema.fingerprint, RecordJSON(schema.relation))
        }
        guard let record = renderer?.record else { return }
        output.removeAll()
        rows += try Self.render(part.payload, record, to: &output)
        jsonBytes += output.count
    }

    // The parameter is `inout` so that the check for exclusive access happens only once for each part.
    private static func render(_ payload: RawSpan, _ record: RecordJSON, to output: inout ByteWriter) throws -> Int {
        var part = try TransactionPart(payload)
        var rows = 0
        while let change = try part.next() {
            if let new = change.new { try record.append(new, to: &output) }
            rows += 1
        }
        return rows
    }

    var systemIdentifier: UInt64 { 0 }
    var position: LSN { .zero }
    var durablePosition: LSN { .zero }
    var pendingBytes: Int { 0 }
    var isNew: Bool { false }
    func begin(systemIdentifier: UInt64, at position: LSN, after gap: Gap?) {}
    func abandon() {}
    func advance(to position: LSN) {}
    func flush() {}
    func recordGap(_ gap: Gap, systemIdentifier: UInt64) {}
}
