import Bytes
import System

/// File beside the log's segments with the name of the replication slot with which a new log is about to begin. The hub
/// writes the file before it creates the slot, and removes it when the log has begun.
///
/// If the hub ends in between, the next start recognizes the slot as its own. Any other slot that exists before the log
/// belonged to a log that has been lost.
struct BeginningFile {
    static let name = "beginning"
    /// Maximum size of the file. PostgreSQL limits names to 63 bytes.
    private static let maximumBytes = 256

    let directory: any StorageDirectory

    /// Returns the name in the file; nil if the file is missing or empty. The slot then counts as that of another log.
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
        try directory.replace(Self.name, with: text.bytes)
    }

    /// Removes the file. If that fails, the next start removes it. Nothing reads it in the meantime.
    func remove() {
        guard (try? directory.names().contains(Self.name)) == true else { return }
        try? directory.remove(Self.name)
        try? directory.sync()
    }
}
