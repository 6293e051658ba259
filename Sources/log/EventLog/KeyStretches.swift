import Bytes
import Diagnostics
import System

/// Filters that tell which keys each stretch of a sealed segment may have. A stretch is the part between two points of
/// the segment's index. With the filters, a search for one row reads only a small part of each segment that has the
/// row.
///
/// The filters are stored in a file beside the segment. The file is optional: if it is missing or invalid, readers
/// ignore it.
///
///     "TWKEYS01"  u32 header checksum of its segment  u32 number of stretches  u32 blocks of each filter
///     filter words  u32 CRC-32C of all before
struct KeyStretches: Sendable, Equatable {
    private(set) var filters: [KeyFilter]

    /// Creates the filters.
    ///
    /// - Parameter starts: the number of keys before each stretch.
    init(of keys: [UInt64], from starts: [Int]) {
        assert(starts.allSatisfy { $0 <= keys.count }, "a stretch begins among the keys, or behind them")
        filters = starts.indices.map { place in
            let end = place + 1 < starts.count ? starts[place + 1] : keys.count
            return KeyFilter(of: keys[starts[place]..<end])
        }
    }

    /// Returns the index of the first stretch from `start` on that may have one of the keys. If there is none, returns
    /// the number of stretches.
    func first(from start: Int, havingAnyOf keys: [UInt64]) -> Int {
        filters.indices[start...].first { keys.contains(where: filters[$0].mayContain) } ?? filters.count
    }
}

// MARK: - The file

extension KeyStretches {
    private static let magic: StaticString = "TWKEYS01"

    func encode(of header: SegmentHeader, to writer: inout ByteWriter) {
        writer.append(Self.magic)
        writer.append(little: header.checksum)
        writer.append(little: UInt32(filters.count))
        for filter in filters { writer.append(little: UInt32(filter.words.count / KeyFilter.wordsPerBlock)) }
        for filter in filters { for word in filter.words { writer.append(little: word) } }
        let checksum = CRC32C.of(writer.bytes)
        writer.append(little: checksum)
    }

    /// Decodes the filters. Nil unless the bytes are complete and belong to this segment with this number of stretches.
    static func decode(_ bytes: RawSpan, of header: SegmentHeader, stretches: Int) -> KeyStretches? {
        guard bytes.byteCount > 4 else { return nil }
        let content = bytes.extracting(0..<bytes.byteCount - 4)
        var tail = ByteReader(bytes.extracting(bytes.byteCount - 4..<bytes.byteCount))
        guard (try? tail.littleUInt32()) == CRC32C.of(content) else { return nil }
        var reader = ByteReader(content)
        return try? KeyStretches(&reader, header, stretches)
    }

    private init(_ reader: inout ByteReader, _ header: SegmentHeader, _ stretches: Int) throws(ByteError) {
        let magic = try reader.span(8)
        guard magic.equals(Self.magic), try reader.littleUInt32() == header.checksum,
            try reader.littleUInt32() == UInt32(stretches)
        else { throw ByteError(expected: "the keys of this segment", offset: 0) }
        var blocks: [Int] = []
        for _ in 0..<stretches { blocks.append(Int(try reader.littleUInt32())) }
        // Memory is reserved only for words that are really present.
        guard reader.remaining == blocks.reduce(0, +) * KeyFilter.wordsPerBlock * 8 else {
            throw ByteError(expected: "as many words as announced", offset: reader.offset)
        }
        filters = []
        filters.reserveCapacity(stretches)
        for count in blocks {
            filters.append(KeyFilter(words: try reader.littleUInt64s(count * KeyFilter.wordsPerBlock)))
        }
    }
}

extension SegmentMap {
    /// Writes the index files of a sealed segment. The index itself is the last, because readers look for the other
    /// file only if there is an index.
    func write(to directory: any StorageDirectory) throws(SystemError) {
        assert(summary.isSealed, "only a sealed segment has an index beside it")
        var bytes = ByteWriter(capacity: 4096)
        if let stretches {
            stretches.encode(of: summary.header, to: &bytes)
            try Self.write(bytes.bytes, as: LogFile.keys(summary.sequence), to: directory)
            bytes.removeAll()
        }
        Sidecar.encode(self, to: &bytes)
        try Self.write(bytes.bytes, as: LogFile.sidecar(summary.sequence), to: directory)
    }

    private static func write(
        _ bytes: RawSpan, as name: String, to directory: any StorageDirectory
    ) throws(SystemError) {
        let file = try directory.open(name, for: .creating)
        try file.write(bytes, at: 0)
        try file.sync()
    }
}

extension SegmentFiles {
    /// Returns the filters of a sealed segment's stretches; nil if they are missing or invalid.
    func stretches(of map: SegmentMap) -> KeyStretches? {
        let header = map.summary.header
        guard
            let bytes = try? contents(
                of: LogFile.keys(header.sequence), in: directory, atMost: Limits.maximumSidecarBytes)
        else { return nil }
        return KeyStretches.decode(bytes.bytes, of: header, stretches: map.points.count)
    }
}

/// Stretches of a sealed segment that a reader with keys must read.
struct WantedStretches: Sendable {
    private let points: [IndexPoint]
    private let relations: [IndexPoint]
    private let end: IndexPoint
    /// Key filter of the whole segment.
    private let filter: KeyFilter
    private let stretches: KeyStretches
    /// True if the first stretch must be read whichever keys it has, because an epoch may begin there.
    private let readsFirst: Bool
    /// Searched keys that the segment may have. A stretch could match another key only by a false positive, which among
    /// many stretches would happen.
    private var likely: [UInt64] = []
    /// Number of searched keys that have been checked against the segment's filter.
    private var asked = 0
    /// Index of the first stretch that begins after the position of the last call.
    private var next = 0

    init(_ map: SegmentMap, _ stretches: KeyStretches, readsFirst: Bool) {
        assert(stretches.filters.count == map.points.count, "each stretch begins at a point")
        points = map.points
        relations = map.relations
        end = map.summary.end
        filter = map.filter
        self.stretches = stretches
        self.readsFirst = readsFirst
    }

    /// Returns the point at which the reader must continue, and the schema entries that it skips. Nil if the reader
    /// should read on at `position`, which is between two entries. `keys` must begin with the keys of earlier calls.
    mutating func detour(
        from position: UInt64, for keys: [UInt64]
    ) -> (point: IndexPoint, relations: [IndexPoint])? {
        while next < points.count, points[next].position < position { next += 1 }
        guard next < points.count, points[next].position == position else { return nil }
        likely += keys[asked...].filter(filter.mayContain)
        asked = keys.count
        let isFirst = next == 0
        let wanted = isFirst && readsFirst ? 0 : stretches.first(from: next, havingAnyOf: likely)
        assert((next...points.count).contains(wanted), "a detour leads forward")
        defer { next = wanted + 1 }
        guard wanted > next else { return nil }
        // After the last stretch, the segment has nothing more to show.
        guard wanted < points.count else { return (end, []) }
        let passed = position..<points[wanted].position
        return (points[wanted], relations.filter { passed.contains($0.position) })
    }

    /// Position at which the reader must call `detour` again.
    var nextQuestion: UInt64 { next < points.count ? points[next].position : .max }
}
