import Bytes
import CLinux
import Diagnostics
import EventLog
import Glibc
import System

/// Measurement of the speed with which the hub verifies a whole log. The baseline is a plain checksum over the same
/// files.
struct RecoveryScan {
    private let directory: DiskDirectory
    private let entries: Int
    private let bytes: UInt64

    /// Writes the log that is scanned.
    init(_ directory: DiskDirectory, bytes wanted: Int, payload: [UInt8]) throws {
        self.directory = directory
        var appender = try LogAppender(directory, payload: payload)
        let batch = 2048
        let batches = max(1, wanted / (batch * (payload.count + EntryHeader.byteCount)))
        for _ in 0..<batches { try appender.append(batch: batch) }
        entries = batches * batch
        bytes = UInt64(entries * (payload.count + EntryHeader.byteCount))
    }

    /// Returns the number of bytes per second that the verifier reads. The hub runs the same verifier after a crash.
    func verify() throws -> Double {
        let began = Clock.monotonicNanoseconds()
        let reports = try EventLogVerifier.verify(directory)
        let spent = Double(Clock.monotonicNanoseconds() - began) / 1e9
        let found = reports.reduce(0) { $0 + ($1.summary?.entries ?? 0) }
        guard found == UInt64(entries), reports.allSatisfy({ $0.problems.isEmpty }) else {
            throw BenchFailure("void (recovery scan): \(found) entries of \(entries) were found whole")
        }
        return Double(bytes) / spent
    }

    /// Returns the number of bytes per second of a plain checksum over the segments' files, read in blocks as large as
    /// the verifier's.
    func plainChecksum() throws -> Double {
        var block = ByteWriter(capacity: Limits.logScanBytes)
        var crc: UInt32 = 0
        var total: UInt64 = 0
        let began = Clock.monotonicNanoseconds()
        for segment in try EventLogReader.segments(in: directory) {
            let file = try directory.open(name(segment.sequence), for: .reading)
            var position: UInt64 = 0
            while position < segment.bytes {
                block.removeAll()
                let wanted = Int(min(UInt64(Limits.logScanBytes), segment.bytes - position))
                // SAFETY: the file fills the room it is given and says how much.
                let got = unsafe try block.append(upTo: wanted) { room throws(SystemError) in
                    unsafe try file.read(into: room, at: position)
                }
                guard got > 0 else { break }
                crc = CRC32C.of(block.bytes, continuing: crc)
                position += UInt64(got)
            }
            total += position
        }
        let spent = Double(Clock.monotonicNanoseconds() - began) / 1e9
        return crc == 0 ? 0 : Double(total) / spent
    }

    /// Removes the pages of the log's files from the kernel's cache. The cache of other programs' files stays.
    func makeCold() throws {
        for segment in try EventLogReader.segments(in: directory) {
            // SAFETY: Swift passes a C string that lives for the call.
            let file = try systemCall("open", name(segment.sequence)) {
                unsafe tw_open(directory.path + "/" + name(segment.sequence), O_RDONLY | O_CLOEXEC, 0)
            }
            defer { _ = close(file) }
            _ = fdatasync(file)
            _ = posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)
        }
    }

    private func name(_ sequence: UInt64) -> String {
        let digits = String(sequence)
        return String(repeating: "0", count: max(0, 10 - digits.count)) + digits + ".segment"
    }
}
