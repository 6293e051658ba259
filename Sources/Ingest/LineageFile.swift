import Bytes
import Replication
import System

/// Which history the log follows, in a small file beside its segments: two numbers in text, timeline and database.
///
/// The file is replaced as a whole, so a crash leaves the old one or the new one. Without it (a log from elsewhere, of
/// which only the segments were copied) nothing is known, and the next stream notes it.
struct LineageFile {
    static let name = "lineage"
    private static let unfinished = "lineage.new"

    let directory: any StorageDirectory

    func read() -> Lineage? {
        guard let file = try? directory.open(Self.name, for: .reading) else { return nil }
        var bytes = ByteWriter(capacity: 64)
        // SAFETY: `read` initialises as many bytes of the room as it says.
        let count = unsafe try? bytes.append(upTo: 64) { room throws(SystemError) in
            unsafe try file.read(into: room, at: 0)
        }
        guard count != nil else { return nil }
        let words = bytes.bytes.text.split(whereSeparator: \.isWhitespace)
        guard words.count == 2, let timeline = UInt32(words[0]), let database = UInt32(words[1]) else { return nil }
        return Lineage(timeline: timeline, database: database)
    }

    func write(_ lineage: Lineage) throws(SystemError) {
        var text = ByteWriter(capacity: 64)
        text.append("\(lineage.timeline) \(lineage.database)\n")
        let file = try directory.open(Self.unfinished, for: .creating)
        try file.write(text.bytes, at: 0)
        try file.sync()
        try directory.rename(Self.unfinished, to: Self.name)
        try directory.sync()
    }
}
