import Bytes
import Diagnostics
import Glibc
import System

/// Files of the log in their directory. All members only read, so any process may use them at any time.
struct SegmentFiles: Sendable {
    let directory: any StorageDirectory

    /// Returns the numbers of all segments in ascending order. While the writer begins a segment, a directory listing
    /// may show the new segment but not the one before it. So a list with a hole is read again.
    func sequences() throws(EventLogError) -> [UInt64] {
        var sequences = try listed()
        for _ in 0..<2 where zip(sequences, sequences.dropFirst()).contains(where: { $1 != $0 + 1 }) {
            sequences = try listed()
        }
        return sequences
    }

    private func listed() throws(EventLogError) -> [UInt64] {
        let names = try reading { () throws(SystemError) in try directory.names() }
        return names.compactMap(LogFile.sequence(ofSegment:)).sorted()
    }

    /// Throws if the number of a segment is missing between two others, because the log is then damaged.
    func requireUnbroken(_ sequences: [UInt64]) throws(EventLogError) {
        for (earlier, later) in zip(sequences, sequences.dropFirst()) where later != earlier + 1 {
            throw .damaged(
                EventLogDamage(path: path(earlier + 1), position: 0, finding: "the segment is missing"))
        }
    }

    func path(_ sequence: UInt64) -> String { directory.path + "/" + LogFile.segment(sequence) }

    func damage(_ sequence: UInt64, at position: UInt64, _ finding: String) -> EventLogError {
        .damaged(EventLogDamage(path: path(sequence), position: position, finding: finding, segment: sequence))
    }

    /// Opens the segment with this number; nil if it does not exist.
    func open(
        _ sequence: UInt64, for access: StorageAccess = .reading
    ) throws(EventLogError) -> (file: any StorageFile, header: SegmentHeader)? {
        let file: any StorageFile
        do {
            file = try directory.open(LogFile.segment(sequence), for: access)
        } catch {
            if error.code == ENOENT { return nil }
            throw .failure(EventLogFailure(error))
        }
        guard let header = try reading({ () throws(SystemError) in try Self.header(of: file) }) else {
            let found = try reading { () throws(SystemError) in try Self.format(of: file) }
            guard let found, found > SegmentHeader.formatVersion else {
                throw damage(sequence, at: 0, "no segment header of this format")
            }
            throw damage(
                sequence, at: 8,
                "format \(found) of a newer version of tidewire, and not damaged at all; this one reads up to format "
                    + "\(SegmentHeader.formatVersion)")
        }
        guard header.sequence == sequence else {
            throw damage(sequence, at: 24, "the header of another segment (\(header.sequence))")
        }
        return (file, header)
    }

    /// Returns the format version that a file states; nil if the file is not a segment.
    private static func format(of file: any StorageFile) throws(SystemError) -> UInt32? {
        var buffer = ReadBuffer(capacity: SegmentHeader.byteCount)
        try buffer.fill(from: file, at: 0, wanted: SegmentHeader.byteCount, limit: .max)
        guard buffer.holds(SegmentHeader.byteCount, at: 0) else { return nil }
        return SegmentHeader.format(of: buffer.bytes(SegmentHeader.byteCount, at: 0))
    }

    private static func header(of file: any StorageFile) throws(SystemError) -> SegmentHeader? {
        var buffer = ReadBuffer(capacity: SegmentHeader.byteCount)
        try buffer.fill(from: file, at: 0, wanted: SegmentHeader.byteCount, limit: .max)
        guard buffer.holds(SegmentHeader.byteCount, at: 0) else { return nil }
        return SegmentHeader.decode(buffer.bytes(SegmentHeader.byteCount, at: 0))
    }

    /// Reads the index of a sealed segment from its index file (sidecar); nil if the file is missing or invalid.
    func sidecar(of file: any StorageFile, _ header: SegmentHeader) -> SegmentMap? {
        guard let size = try? file.size(),
            let bytes = try? contents(
                of: LogFile.sidecar(header.sequence), in: directory, atMost: Limits.maximumSidecarBytes)
        else { return nil }
        return Sidecar.decode(bytes.bytes, of: header, segmentBytes: size)
    }

    /// Returns the index of a segment, from its index file if that is valid, otherwise from its entries up to `limit`.
    func map(
        of file: any StorageFile, _ header: SegmentHeader, sealed: Bool, limit: UInt64 = .max, keysOf: EventLogKeys?
    ) throws(EventLogError) -> SegmentMap {
        if sealed, let map = sidecar(of: file, header) { return map }
        let scan = try reading { () throws(SystemError) in
            try SegmentScan.of(file, header, limit: limit, keysOf: keysOf)
        }
        return scan.index.map(sealed: sealed)
    }
}
