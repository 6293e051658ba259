import Bytes
import System

/// The slot with which a new log is about to begin, in a small file where its segments will be: written while there is no
/// such slot, and gone when the log has begun.
///
/// So a hub that ends in between finds a slot that was made for it. Any other slot that is there before its log was made for
/// a log that is lost.
struct BeginningFile {
    static let name = "beginning"
    private static let unfinished = "beginning.new"
    /// PostgreSQL's names have 63 bytes at most.
    private static let maximumBytes = 256

    let directory: any StorageDirectory

    /// Returns the file's content; nil if it is missing or empty. The slot then counts as another log's.
    func read() throws(SystemError) -> String? {
        guard let file = try directory.openIfThere(Self.name) else { return nil }
        var bytes = ByteWriter(capacity: Self.maximumBytes)
        // SAFETY: `read` initialises as many bytes of the room as it says.
        _ = unsafe try bytes.append(upTo: Self.maximumBytes) { room throws(SystemError) in
            unsafe try file.read(into: room, at: 0)
        }
        guard bytes.bytes.text.last == "\n" else { return nil }
        return String(bytes.bytes.text.dropLast())
    }

    func write(_ slot: String) throws(SystemError) {
        var text = ByteWriter(capacity: 64)
        text.append("\(slot)\n")
        let file = try directory.open(Self.unfinished, for: .creating)
        try file.write(text.bytes, at: 0)
        try file.sync()
        try directory.rename(Self.unfinished, to: Self.name)
        try directory.sync()
    }

    /// Where it cannot be removed now, the next start does: before that start nothing asks for it.
    func remove() {
        guard (try? directory.names().contains(Self.name)) == true else { return }
        try? directory.remove(Self.name)
        try? directory.sync()
    }
}
