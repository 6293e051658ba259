import Bytes
import Diagnostics
import EventLog
import System

/// Contestant of the benchmark `log`, which makes batches of entries durable.
protocol Appender {
    /// Appends a batch and returns when it is durable.
    mutating func append(batch: Int) throws
}

extension Appender {
    /// Returns the number of entries that the appender makes durable per second. A warm-up precedes the measurement,
    /// because first writes to new files are slower.
    mutating func rate(batch: Int, seconds: Double) throws -> Double {
        _ = try count(batch: batch, seconds: seconds / 3)
        let (entries, spent) = try count(batch: batch, seconds: seconds)
        return Double(entries) / spent
    }

    private mutating func count(batch: Int, seconds: Double) throws -> (entries: Int, seconds: Double) {
        let began = Clock.monotonicNanoseconds()
        var entries = 0
        while true {
            try append(batch: batch)
            entries += batch
            let spent = Double(Clock.monotonicNanoseconds() - began) / 1e9
            if spent >= seconds { return (entries, spent) }
        }
    }
}

/// Appender to the hub's event log, by the hub's own writer.
struct LogAppender: Appender {
    private let writer: EventLogWriter
    private let payload: [UInt8]
    private var lsn: UInt64 = 0

    init(_ directory: DiskDirectory, payload: [UInt8]) throws {
        var options = EventLogOptions(source: 1)
        options.segmentBytes = UInt64(Limits.defaultSegmentBytes)
        writer = try EventLogWriter(directory: directory, options: options)
        self.payload = payload
    }

    mutating func append(batch: Int) throws {
        for _ in 0..<batch {
            lsn += 1
            let bytes = payload.rawBytes
            try writer.append(kind: .transaction, changeCount: 1, lsn: lsn, time: 0, payload: bytes)
        }
        try writer.flush()
    }
}

struct SQLiteAppender: Appender {
    private let log: SQLiteLog
    private let payload: [UInt8]

    init(_ library: SQLiteLibrary, path: String, payload: [UInt8]) throws {
        log = try SQLiteLog(library, path: path)
        self.payload = payload
    }

    mutating func append(batch: Int) throws {
        try log.append(payload.rawBytes, count: batch)
    }
}

/// Baseline that shows what the disk alone can do. For each batch, it writes as many bytes as the event log into a
/// preallocated file, with one write and one fdatasync.
struct DiskAppender: Appender {
    private static let fileBytes: UInt64 = 64 << 20
    private let file: any StorageFile
    private let bytes: [UInt8]
    private var position: UInt64 = 0

    init(_ directory: DiskDirectory, batch: Int, payloadBytes: Int) throws {
        file = try directory.open("plain", for: .creating)
        bytes = [UInt8](repeating: 7, count: batch * (payloadBytes + EntryHeader.byteCount))
        let zeros = [UInt8](repeating: 0, count: 1 << 20)
        for start in stride(from: 0, to: Self.fileBytes, by: zeros.count) {
            try file.write(zeros.rawBytes, at: start)
        }
        try file.sync()
    }

    mutating func append(batch: Int) throws {
        if position + UInt64(bytes.count) > Self.fileBytes { position = 0 }
        // SAFETY: as above.
        try file.write(unsafe bytes.span.bytes, at: position)
        try file.sync()
        position += UInt64(bytes.count)
    }
}
