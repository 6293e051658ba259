import Bytes
import System

/// Gap entry with which a new epoch begins.
struct FirstEntry: ~Copyable {
    let time: Int64
    let payload: ByteWriter
}

/// Maker of segments. It builds a segment completely under a temporary name, so that a file with the name of a segment
/// is always valid.
struct SegmentMaker {
    let directory: any StorageDirectory
    /// Number of bytes for which a new segment's file reserves disk space.
    let bytes: UInt64

    /// Creates the segment's file and gives it its final name. The caller must sync the directory to make the name
    /// durable.
    func make(
        _ header: SegmentHeader, on ready: (any StorageFile)?, gap: consuming FirstEntry?, withZeros: Bool = false
    ) throws(EventLogFailure) -> (file: any StorageFile, index: SegmentIndex) {
        var content = ByteWriter(capacity: 4096)
        header.append(to: &content)
        var index = SegmentIndex(header)
        if let gap = consume gap { add(gap, to: &index, &content) }
        let written = UInt64(content.count)
        assert(index.whole.bytes == written, "the index describes all of the new segment")
        do {
            let file = if let ready { ready } else { try emptyFile(withZeros: withZeros) }
            try file.write(content.bytes, at: 0)
            try file.sync()
            try directory.rename(LogFile.spare, to: LogFile.segment(header.sequence))
            return (file, index)
        } catch { throw EventLogFailure(error) }
    }

    private func emptyFile(withZeros: Bool) throws(SystemError) -> any StorageFile {
        let file = try directory.open(LogFile.spare, for: .creating)
        try file.reserve(bytes)
        if withZeros { try file.writeZeros(from: 0, to: bytes) }
        return file
    }

    private func add(_ gap: borrowing FirstEntry, to index: inout SegmentIndex, _ content: inout ByteWriter) {
        let entry = EntryHeader(
            payloadBytes: gap.payload.count, kind: .gap, isContinued: false, changeCount: 0,
            offset: index.all.endOffset, lsn: index.all.lastLSN, time: gap.time,
            publishedBytes: UInt64(SegmentHeader.byteCount))
        index.add(entry)
        entry.append(payload: gap.payload.bytes, seed: index.all.header.checksum, to: &content)
    }
}
