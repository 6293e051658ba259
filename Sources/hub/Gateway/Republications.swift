import Bytes
import Catalog

/// Tables that left the publication and came back, or are in it otherwise than they were: what was committed meanwhile
/// never comes. In: catalogs, in their order. Out: how far a channel's past has to reach for it to miss something.
struct Republications: Equatable {
    /// By what each table was put into the publication, also of those that are not in it now: they may come back.
    private var marks: [UInt32: String] = [:]
    /// Where in the log it was noticed: the offset behind what had been read.
    private var noticed: [UInt32: UInt64] = [:]
    private(set) var latest: UInt64 = 0
    /// Tables that are remembered.
    var count: Int { marks.count }

    init() {}

    /// `end` is the log's.
    mutating func take(_ tables: [CatalogTable], at end: UInt64) {
        // A log that was begun anew does not reach as far as the one before, whose clients are told so otherwise.
        for (table, offset) in noticed where offset > end + 1 { noticed[table] = end + 1 }
        for table in tables {
            let mark = Self.mark(of: table)
            if let known = marks[table.oid], known != mark, !(known == table.publishedBy && !known.contains("|")) {
                noticed[table.oid] = end + 1
            }
            marks[table.oid] = mark
        }
        latest = noticed.values.max() ?? 0
        guard marks.count > Self.most(of: tables.count) else { return }
        // Tables that are made and dropped all the time are not remembered for ever.
        let present = Set(tables.map(\.oid))
        marks = marks.filter { present.contains($0.key) }
        noticed = noticed.filter { present.contains($0.key) }
    }

    /// Returns the table's publications and options. Records of older versions have only the publications.
    private static func mark(of table: CatalogTable) -> String { table.publishedBy + "|" + table.publicationVersion }

    private static func most(of tables: Int) -> Int { max(1024, 2 * tables) }

    /// Who begins there or later misses nothing of the table, nor does who was told so.
    func wholeFrom(_ table: UInt32) -> UInt64 { noticed[table] ?? 0 }
}

/// The stored form: version u8 · tables u32 · { table u32 · where u64 · mark's length u32 · mark } · CRC-32C u32.
extension Republications {
    func encoded() -> [UInt8] {
        var writer = ByteWriter(capacity: 64 + marks.count * 32)
        writer.append(Self.version)
        writer.append(little: UInt32(marks.count))
        for (table, mark) in marks.sorted(by: { $0.key < $1.key }) {
            writer.append(little: table)
            writer.append(little: wholeFrom(table))
            writer.append(little: UInt32(mark.utf8.count))
            writer.append(mark)
        }
        writer.append(little: CRC32C.of(writer.bytes))
        return writer.copied()
    }

    private static let version: UInt8 = 1

    init(encoded bytes: RawSpan) throws(ByteError) {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == Self.version else {
            throw ByteError(expected: "publications of version 1", offset: 0)
        }
        for _ in 0..<(try reader.littleUInt32()) {
            let table = try reader.littleUInt32()
            let offset = try reader.littleUInt64()
            let length = try reader.littleUInt32()
            marks[table] = try reader.span(Int(length)).text
            if offset > 0 { noticed[table] = offset }
        }
        latest = noticed.values.max() ?? 0
        let end = reader.offset
        guard try reader.littleUInt32() == CRC32C.of(bytes.extracting(0..<end)) else {
            throw ByteError(expected: "the checksum of what precedes it", offset: end)
        }
        try reader.expectEnd()
    }
}
