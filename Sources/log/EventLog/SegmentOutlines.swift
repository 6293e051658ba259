import Bytes
import Diagnostics
import System

/// Facts about a segment that need not be read again: where transactions begin, its schemas, and its keys.
struct SegmentOutline {
    var points: [IndexPoint]
    /// Payloads of the segment's schema entries.
    var relations: [[UInt8]] = []
    var filter = KeyFilter.everything
    /// Byte position up to which the segment is described.
    var end: UInt64
    /// True if the outline is from the index of a sealed segment, so that it describes the whole segment.
    var isWhole = false

    init(startOf header: SegmentHeader) {
        points = [IndexPoint(startOf: header)]
        end = UInt64(SegmentHeader.byteCount)
    }

    var byteCount: Int {
        (points.count + 8) * MemoryLayout<IndexPoint>.stride + filter.words.count * 8
            + relations.reduce(0) { $0 + $1.count + 32 }
    }
}

/// Cache of the outlines of segments, for a search that may read the same segments again soon. One thread uses it.
public final class SegmentOutlines {
    let files: SegmentFiles
    private let maximumBytes: Int
    private var known: [UInt32: SegmentOutline] = [:]
    private var knownBytes = 0

    /// Creates the cache. If the outlines need more than `maximumBytes`, the cache discards all of them and makes them
    /// again when needed.
    public init(directory: any StorageDirectory, maximumBytes: Int) {
        files = SegmentFiles(directory: directory)
        self.maximumBytes = maximumBytes
    }

    /// Returns the outline of the part before `limit`. Adds the number of bytes that were read to `bytesRead`.
    func outline(
        of file: any StorageFile, _ header: SegmentHeader, before limit: UInt64, _ bytesRead: inout UInt64
    ) throws(EventLogError) -> SegmentOutline {
        let before = known[header.checksum]
        if let before, before.isWhole || before.end >= limit { return before }
        var outline = before ?? SegmentOutline(startOf: header)
        if let map = files.sidecar(of: file, header) {
            outline = try reading { () throws(SystemError) in try Self.outline(map, file, header) }
            guard outline.relations.count == map.relations.count else {
                throw files.damage(header.sequence, at: UInt64(SegmentHeader.byteCount), "a schema that does not read")
            }
        } else {
            let start = outline.end
            try reading { () throws(SystemError) in try Self.extend(&outline, file, header, to: limit) }
            bytesRead += outline.end - start
            // The unreadable part may contain the newest version of a row, so its damage is an error.
            let size = try reading { () throws(SystemError) in try file.size() }
            guard outline.end >= min(limit, size) else {
                throw files.damage(header.sequence, at: outline.end, "bytes that are no entry")
            }
        }
        knownBytes += outline.byteCount - (before?.byteCount ?? 0)
        if knownBytes > maximumBytes {
            known = [:]
            knownBytes = outline.byteCount
        }
        known[header.checksum] = outline
        assert(knownBytes >= outline.byteCount, "the cache counts all that it holds")
        return outline
    }

    static func outline(
        _ map: SegmentMap, _ file: any StorageFile, _ header: SegmentHeader
    ) throws(SystemError) -> SegmentOutline {
        var outline = SegmentOutline(startOf: header)
        outline.points = map.points
        outline.filter = map.filter
        outline.end = map.summary.bytes
        outline.isWhole = true
        var scanner = SegmentScanner(file, header, readBytes: 16 << 10)
        for point in map.relations {
            scanner.move(to: point)
            if try scanner.step() == .entry { outline.relations.append(scanner.payload.copied()) }
        }
        return outline
    }

    /// Extends the outline by reading entries. That is necessary for a segment without an index, such as the active
    /// one.
    private static func extend(
        _ outline: inout SegmentOutline, _ file: any StorageFile, _ header: SegmentHeader, to limit: UInt64
    ) throws(SystemError) {
        guard let last = outline.points.last else { return }
        var scanner = SegmentScanner(file, header, from: last, limit: limit)
        var begin = scanner.nextPoint
        while true {
            let here = scanner.nextPoint
            guard try scanner.step() == .entry else { return }
            // Schema entries before the end of the outline have been added already.
            if scanner.entry.kind == .relation, here.position >= outline.end {
                outline.relations.append(scanner.payload.copied())
            }
            outline.end = max(outline.end, scanner.next)
            if scanner.entry.isContinued { continue }
            if begin.position > outline.points[outline.points.count - 1].position + Limits.indexStride {
                outline.points.append(begin)
            }
            begin = scanner.nextPoint
        }
    }
}
