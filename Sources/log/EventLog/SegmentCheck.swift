import Bytes
import Diagnostics
import System

/// One sealed segment, read from its beginning to its end in steps, for who reads slowly. It checks what can be checked.
public struct SegmentCheck: ~Copyable {
    private let files: SegmentFiles
    private var scanner: SegmentScanner

    /// Nil if the segment is not there (any more).
    public init?(_ directory: any StorageDirectory, segment: UInt64) throws(EventLogError) {
        files = SegmentFiles(directory: directory)
        guard let (file, header) = try files.open(segment) else { return nil }
        scanner = SegmentScanner(file, header, readBytes: Limits.logReadBytes)
    }

    /// How far it has come.
    public var bytesRead: UInt64 { scanner.next }

    /// Reads on over at least so many bytes; false at the segment's end.
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

    /// The segments before the one that is written to, as they are named in the directory.
    public static func sealed(
        in directory: any StorageDirectory, before active: UInt64
    ) throws(EventLogError) -> [UInt64] {
        try SegmentFiles(directory: directory).sequences().filter { $0 < active }
    }
}
