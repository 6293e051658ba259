import Bytes
import Diagnostics
import Glibc
import Replication
import System

/// Identity of the history that the log follows, in a small file beside its segments: lines of text, then a checksum.
///
/// The file is replaced as a whole, so a crash leaves the old or the new one. If it is missing (in a log of which only
/// the segments were copied), the history is unknown, and the next stream records it. A damaged file is different: a
/// known history was lost.
struct LineageFile {
    enum Content: Equatable {
        case none
        case whole(Lineage)
        case damaged(String)
    }

    static let name = "lineage"
    private static let unfinished = "lineage.new"
    /// Limit for a line per member and a few more lines.
    private static let maximumBytes = 32 * (Limits.maximumFollowedMembers + 8)

    let directory: any StorageDirectory

    func read() throws(SystemError) -> Content {
        guard let file = try directory.openIfThere(Self.name) else { return .none }
        var bytes = ByteWriter(capacity: Self.maximumBytes)
        // SAFETY: `read` initialises as many bytes of the room as it says.
        _ = unsafe try bytes.append(upTo: Self.maximumBytes) { room throws(SystemError) in
            unsafe try file.read(into: room, at: 0)
        }
        return Self.decode(bytes.bytes)
    }

    static func decode(_ bytes: RawSpan) -> Content {
        let lines = bytes.text.split(separator: "\n").map { $0.split(separator: " ") }
        // Older versions wrote the file without a checksum.
        if lines.count == 1, lines[0].count == 2, let timeline = UInt32(lines[0][0]), let database = UInt32(lines[0][1])
        {
            return .whole(Lineage(timeline: timeline, database: database))
        }
        guard lines.last?.first == "checksum", let checksum = lines.last?.last.flatMap({ UInt32($0, radix: 16) }) else {
            return .damaged("its end is missing")
        }
        guard let lineage = lineage(lines.dropLast()), bytes.copied() == encode(lineage).copied() else {
            return .damaged("its checksum is not \(String(checksum, radix: 16))")
        }
        return .whole(lineage)
    }

    private static func lineage(_ lines: some Sequence<[Substring]>) -> Lineage? {
        var numbers: [Substring: UInt32] = [:]
        var members: [UInt32: UInt32] = [:]
        for line in lines {
            let values = line.dropFirst().compactMap { UInt32($0) }
            switch (line.first, values.count) {
            case ("member", 2): members[values[0]] = values[1]
            case (let name?, 1): numbers[name] = values[0]
            default: return nil
            }
        }
        guard let timeline = numbers["timeline"], let database = numbers["database"] else { return nil }
        let publication = numbers["publication"].map { PublishedTables(number: $0, members: members) }
        return Lineage(timeline: timeline, database: database, publication: publication)
    }

    static func encode(_ lineage: Lineage) -> ByteWriter {
        var text = ByteWriter(capacity: 256)
        text.append("timeline \(lineage.timeline)\ndatabase \(lineage.database)\n")
        if let publication = lineage.publication {
            text.append("publication \(publication.number)\n")
            for (member, row) in publication.members.sorted(by: { $0.key < $1.key }) {
                text.append("member \(member) \(row)\n")
            }
        }
        text.append("checksum \(String(CRC32C.of(text.bytes), radix: 16))\n")
        return text
    }

    func write(_ lineage: Lineage) throws(SystemError) {
        let text = Self.encode(lineage)
        let byteCount = text.count
        assert(byteCount <= Self.maximumBytes, "the file is small enough to be read whole")
        let file = try directory.open(Self.unfinished, for: .creating)
        try file.write(text.bytes, at: 0)
        try file.sync()
        try directory.rename(Self.unfinished, to: Self.name)
        try directory.sync()
    }
}

extension StorageDirectory {
    /// Returns the file for reading; nil if there is none.
    func openIfThere(_ name: String) throws(SystemError) -> (any StorageFile)? {
        do throws(SystemError) {
            return try open(name, for: .reading)
        } catch {
            if error.code == ENOENT { return nil }
            throw error
        }
    }
}
