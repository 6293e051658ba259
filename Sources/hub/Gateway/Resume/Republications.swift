import Bytes
import Catalog

/// Breaks in the publication of tables: a table left the publication and returned, or is now published in another way.
/// The log lacks the changes that were committed in between. The input is the catalogs in order. The output is the
/// offset from which the log has all changes of a table.
struct Republications: Equatable {
    /// Publications and options by table. Tables that are not published are kept, because they may return.
    private var marks: [UInt32: String] = [:]
    /// Offset after the log's last entry at the moment when the hub found a change of the table's publication, by
    /// table.
    private var noticed: [UInt32: UInt64] = [:]
    /// Highest offset at which a break in any table's publication was found.
    private(set) var latest: UInt64 = 0
    /// Offset before which breaks in the publication are not known, because an earlier record could not be read; 0 if
    /// it could.
    private var beginning: UInt64 = 0
    /// True until the first catalog is compared, if an earlier record could not be read.
    private var hasUnknownPast = false
    /// Number of tables whose publications are remembered.
    var count: Int { marks.count }

    init() {}

    /// Creates a record in place of one that cannot be read. Any change before the first catalog may be missing.
    init(withUnknownPast: Void) { hasUnknownPast = true }

    /// Compares the tables of a new catalog with the remembered publications, and records the breaks. `end` is the
    /// log's end.
    mutating func take(_ tables: [CatalogTable], at end: UInt64) {
        // A new log may end at a lower offset than the former one. Clients of the former log learn of it by its epoch.
        for (table, offset) in noticed where offset > end + 1 { noticed[table] = end + 1 }
        beginning = hasUnknownPast ? end + 1 : min(beginning, end + 1)
        hasUnknownPast = false
        for table in tables {
            let mark = Self.mark(of: table)
            if let known = marks[table.oid], known != mark, !(known == table.publishedBy && !known.contains("|")) {
                noticed[table.oid] = end + 1
            }
            marks[table.oid] = mark
        }
        latest = max(beginning, noticed.values.max() ?? 0)
        assert(latest <= end + 1, "nothing is noticed behind the log's end")
        assert(noticed.count <= marks.count, "a table is known before its publication changes")
        guard marks.count > Self.most(of: tables.count) else { return }
        // Tables that are created and dropped repeatedly must not fill the memory.
        let present = Set(tables.map(\.oid))
        marks = marks.filter { present.contains($0.key) }
        noticed = noticed.filter { present.contains($0.key) }
    }

    /// Returns the table's publications and options as a text. Records of older versions contain only the publications.
    private static func mark(of table: CatalogTable) -> String { table.publishedBy + "|" + table.publicationVersion }

    private static func most(of tables: Int) -> Int { max(1024, 2 * tables) }

    /// Returns the offset from which the log has all changes of the table, without a break in its publication. If a
    /// client begins earlier, the hub must report the loss to it once.
    func wholeFrom(_ table: UInt32) -> UInt64 { max(beginning, noticed[table] ?? 0) }
}

/// Stored form: version u8 · beginning u64 · tables u32 · { table u32 · offset u64 · length of the mark u32 · mark } ·
/// CRC-32C u32. Version 1 lacks `beginning`.
extension Republications {
    func encoded() -> [UInt8] {
        var writer = ByteWriter(capacity: 64 + marks.count * 32)
        writer.append(Self.version)
        writer.append(little: beginning)
        writer.append(little: UInt32(marks.count))
        for (table, mark) in marks.sorted(by: { $0.key < $1.key }) {
            writer.append(little: table)
            writer.append(little: noticed[table] ?? 0)
            writer.append(little: UInt32(mark.utf8.count))
            writer.append(mark)
        }
        writer.append(little: CRC32C.of(writer.bytes))
        return writer.copied()
    }

    private static let version: UInt8 = 2

    init(encoded bytes: RawSpan) throws(ByteError) {
        var reader = ByteReader(bytes)
        let version = try reader.uint8()
        guard (1...Self.version).contains(version) else {
            throw ByteError(expected: "publications of version 1 or 2", offset: 0)
        }
        if version > 1 { beginning = try reader.littleUInt64() }
        for _ in 0..<(try reader.littleUInt32()) {
            let table = try reader.littleUInt32()
            let offset = try reader.littleUInt64()
            let length = try reader.littleUInt32()
            marks[table] = try reader.span(Int(length)).text
            if offset > 0 { noticed[table] = offset }
        }
        latest = max(beginning, noticed.values.max() ?? 0)
        let end = reader.offset
        guard try reader.littleUInt32() == CRC32C.of(bytes.extracting(0..<end)) else {
            throw ByteError(expected: "the checksum of what precedes it", offset: end)
        }
        try reader.expectEnd()
    }
}
