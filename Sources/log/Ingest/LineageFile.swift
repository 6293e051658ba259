import Bytes
import Diagnostics
import Glibc
import Replication
import System

/// File beside the log's segments that identifies the database history which the log follows. It has lines of text and
/// a checksum.
///
/// The file is replaced as a whole, so a crash leaves either the old or the new one. If it is missing (for example
/// because only the segments were copied), the history is unknown, and the next stream records it. If it is damaged, a
/// known history has been lost.
struct LineageFile {
    enum Content: Equatable {
        case none
        case whole(Lineage)
        case damaged(String)
    }

    static let name = "lineage"
    private static let maximumBytes = 1 << 18

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
        // Older versions of the hub wrote the file without a checksum.
        if lines.count == 1, lines[0].count == 2, let timeline = UInt32(lines[0][0]), let database = UInt32(lines[0][1])
        {
            return .whole(Lineage(timeline: timeline, database: database))
        }
        guard lines.last?.first == "checksum", let checksum = lines.last?.last.flatMap({ UInt32($0, radix: 16) }) else {
            return .damaged("its end is missing")
        }
        let tail = "checksum \(String(checksum, radix: 16))\n"
        let end = bytes.byteCount - tail.utf8.count
        guard end > 0, bytes.text.hasSuffix(tail), CRC32C.of(bytes.extracting(0..<end)) == checksum,
            let lineage = lineage(lines.dropLast())
        else { return .damaged("its checksum is not \(String(checksum, radix: 16))") }
        return .whole(lineage)
    }

    private static func lineage(_ lines: some Sequence<[Substring]>) -> Lineage? {
        var numbers: [Substring: UInt32] = [:]
        for line in lines {
            let values = line.dropFirst().compactMap { UInt32($0) }
            switch (line.first, values.count) {
            // Older versions of the hub also listed the tables of the publication.
            case ("member", 2): break
            case (let name?, 1): numbers[name] = values[0]
            default: return nil
            }
        }
        guard let timeline = numbers["timeline"], let database = numbers["database"] else { return nil }
        return Lineage(timeline: timeline, database: database, publication: numbers["publication"])
    }

    static func encode(_ lineage: Lineage) -> ByteWriter {
        var text = ByteWriter(capacity: 256)
        text.append("timeline \(lineage.timeline)\ndatabase \(lineage.database)\n")
        if let publication = lineage.publication {
            text.append("publication \(publication)\n")
        }
        text.append("checksum \(String(CRC32C.of(text.bytes), radix: 16))\n")
        return text
    }

    func write(_ lineage: Lineage) throws(SystemError) {
        let text = Self.encode(lineage)
        let byteCount = text.count
        assert(byteCount <= Self.maximumBytes, "the file is small enough to be read whole")
        try directory.replace(Self.name, with: text.bytes)
    }
}

extension StorageDirectory {
    /// Opens the file for reading; nil if it does not exist.
    func openIfThere(_ name: String) throws(SystemError) -> (any StorageFile)? {
        do throws(SystemError) {
            return try open(name, for: .reading)
        } catch {
            if error.code == ENOENT { return nil }
            throw error
        }
    }
}
