import Catalog

/// Tables that left the publication and came back, or are in it otherwise than they were: what was committed meanwhile
/// never comes. In: catalogs, in their order. Out: how far a channel's past has to reach for it to miss something.
struct Republications {
    /// By what each table was put into the publication, also of those that are not in it now: they may come back.
    private var marks: [UInt32: String] = [:]
    /// Where in the log it was noticed: the offset behind what had been read.
    private var noticed: [UInt32: UInt64] = [:]
    private(set) var latest: UInt64 = 0
    /// Tables that are remembered.
    var count: Int { marks.count }

    /// `end` is the log's.
    mutating func take(_ tables: [CatalogTable], at end: UInt64) {
        for table in tables {
            if let known = marks[table.oid], known != table.publishedBy { note(table.oid, at: end + 1) }
            marks[table.oid] = table.publishedBy
        }
        guard marks.count > Self.most(of: tables.count) else { return }
        // Tables that are made and dropped all the time are not remembered for ever.
        let present = Set(tables.map(\.oid))
        marks = marks.filter { present.contains($0.key) }
        noticed = noticed.filter { present.contains($0.key) }
    }

    private mutating func note(_ table: UInt32, at offset: UInt64) {
        noticed[table] = offset
        latest = max(latest, offset)
    }

    private static func most(of tables: Int) -> Int { max(1024, 2 * tables) }

    /// Who begins there or later misses nothing of the table, nor does who was told so.
    func wholeFrom(_ table: UInt32) -> UInt64 { noticed[table] ?? 0 }
}
