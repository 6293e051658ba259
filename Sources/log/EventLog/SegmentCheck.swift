import Bytes
import Diagnostics
import System

/// Slow check of one sealed segment, step by step from its beginning to its end. It checks the checksums and the order
/// of offsets and LSNs.
public struct SegmentCheck: ~Copyable {
    private let files: SegmentFiles
    private var scanner: SegmentScanner

    /// Opens the segment; nil if it does not exist or has been deleted.
    public init?(_ directory: any StorageDirectory, segment: UInt64) throws(EventLogError) {
        files = SegmentFiles(directory: directory)
        guard let (file, header) = try files.open(segment) else { return nil }
        scanner = SegmentScanner(file, header, readBytes: Limits.logReadBytes)
    }

    /// Number of bytes that have been checked.
    public var bytesRead: UInt64 { scanner.next }

    /// Checks at least the next `bytes` bytes. Returns false at the end of the segment.
    public mutating func step(over bytes: UInt64) throws(EventLogError) -> Bool {
        let goal = scanner.next + bytes
        while scanner.next < goal {
            let step = try reading { () throws(SystemError) in try scanner.step() }
            if step == .entry { continue }
            let file = scanner.file
            let size = try reading { () throws(SystemError) in try file.size() }
            guard step == .end, scanner.next == size, !scanner.entry.isContinued else {
                throw files.damage(scanner.header.sequence, at: scanner.next, step.words)
            }
            return false
        }
        return true
    }

    /// Returns the numbers of the segments that precede the active one, according to the file names in the directory.
    public static func sealed(
        in directory: any StorageDirectory, before active: UInt64
    ) throws(EventLogError) -> [UInt64] {
        try SegmentFiles(directory: directory).sequences().filter { $0 < active }
    }
}
