import Bytes
import System

/// Format of the file that stores the index of a sealed segment. The index can always be built again, so a reader
/// ignores an invalid file and reads the entries instead.
///
///     "TWINDEX1"  u32 header checksum of its segment  u32 number of points  u32 of relations  u32 of filter words
///     summary (6 words)  u32 kinds of entries  u32 scheme of keys  points and relations (4 words each)  filter words
///     u32 CRC-32C of all before
enum Sidecar {
    static func encode(_ map: SegmentMap, to writer: inout ByteWriter) {
        assert(!map.points.isEmpty, "an index has a point for the start of its segment")
        writer.append("TWINDEX1")
        writer.append(little: map.summary.header.checksum)
        writer.append(little: UInt32(map.points.count))
        writer.append(little: UInt32(map.relations.count))
        writer.append(little: UInt32(map.filter.words.count))
        let summary = map.summary
        for word in [summary.bytes, summary.entries, summary.endOffset, summary.lastLSN] { writer.append(little: word) }
        writer.append(little: UInt64(bitPattern: summary.minimumTime))
        writer.append(little: UInt64(bitPattern: summary.maximumTime))
        writer.append(little: summary.kinds.rawValue)
        writer.append(little: map.keyScheme)
        for point in map.points { append(point, to: &writer) }
        for relation in map.relations { append(relation, to: &writer) }
        for word in map.filter.words { writer.append(little: word) }
        let checksum = CRC32C.of(writer.bytes)
        writer.append(little: checksum)
    }

    private static func append(_ point: IndexPoint, to writer: inout ByteWriter) {
        writer.append(little: point.position)
        writer.append(little: point.offset)
        writer.append(little: point.lsn)
        writer.append(little: UInt64(bitPattern: point.time))
    }

    /// Decodes the index. Nil unless the bytes are complete and belong to this segment with this size.
    static func decode(_ bytes: RawSpan, of header: SegmentHeader, segmentBytes: UInt64) -> SegmentMap? {
        guard bytes.byteCount > 4 else { return nil }
        let content = bytes.extracting(0..<bytes.byteCount - 4)
        var tail = ByteReader(bytes.extracting(bytes.byteCount - 4..<bytes.byteCount))
        guard (try? tail.littleUInt32()) == CRC32C.of(content) else { return nil }
        var reader = ByteReader(content)
        guard let map = try? decode(&reader, header), map.summary.bytes == segmentBytes else { return nil }
        return map
    }

    private static func decode(_ reader: inout ByteReader, _ header: SegmentHeader) throws(ByteError) -> SegmentMap {
        let magic = try reader.span(8)
        guard magic.equals("TWINDEX1"), try reader.littleUInt32() == header.checksum else {
            throw ByteError(expected: "the index of this segment", offset: 0)
        }
        let (pointCount, relationCount, wordCount) = try (
            Int(reader.littleUInt32()), Int(reader.littleUInt32()), Int(reader.littleUInt32())
        )
        guard wordCount % KeyFilter.wordsPerBlock == 0, pointCount > 0,
            reader.remaining == 56 + 32 * (pointCount + relationCount) + 8 * wordCount
        else { throw ByteError(expected: "as many points as announced", offset: reader.offset) }
        let summary = try summary(&reader, header)
        let keyScheme = try reader.littleUInt32()
        var points: [IndexPoint] = []
        for _ in 0..<pointCount { points.append(try point(&reader)) }
        var relations: [IndexPoint] = []
        for _ in 0..<relationCount { relations.append(try point(&reader)) }
        let filter = KeyFilter(words: try reader.littleUInt64s(wordCount))
        return SegmentMap(
            summary: summary, points: points, relations: relations, filter: filter, keyScheme: keyScheme)
    }

    private static func summary(
        _ reader: inout ByteReader, _ header: SegmentHeader
    ) throws(ByteError) -> SegmentSummary {
        var summary = SegmentSummary(header)
        summary.isSealed = true
        summary.bytes = try reader.littleUInt64()
        summary.entries = try reader.littleUInt64()
        summary.endOffset = try reader.littleUInt64()
        summary.lastLSN = try reader.littleUInt64()
        summary.minimumTime = Int64(bitPattern: try reader.littleUInt64())
        summary.maximumTime = Int64(bitPattern: try reader.littleUInt64())
        summary.kinds = EntryKinds(rawValue: try reader.littleUInt32())
        guard summary.endOffset >= header.baseOffset else {
            throw ByteError(expected: "offsets that grow", offset: reader.offset)
        }
        return summary
    }

    private static func point(_ reader: inout ByteReader) throws(ByteError) -> IndexPoint {
        IndexPoint(
            position: try reader.littleUInt64(), offset: try reader.littleUInt64(), lsn: try reader.littleUInt64(),
            time: Int64(bitPattern: try reader.littleUInt64()))
    }
}

/// Reads a whole file if it is small; otherwise the first `limit` bytes.
func contents(
    of name: String, in directory: any StorageDirectory, atMost limit: Int
) throws(SystemError) -> ByteWriter {
    let file = try directory.open(name, for: .reading)
    let size = Int(min(try file.size(), UInt64(limit)))
    var writer = ByteWriter(capacity: size)
    // SAFETY: `read` initialises as many bytes of the buffer as it says.
    _ = unsafe try writer.append(upTo: size) { buffer throws(SystemError) in unsafe try file.read(into: buffer, at: 0) }
    return writer
}
