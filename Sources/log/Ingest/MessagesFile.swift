import Bytes
import Change
import Replication
import System

/// File beside the log's segments with the point from which the log has every database message: four numbers as text.
///
/// The file is replaced as a whole. If it is missing, the point is unknown, and the next stream records a new one.
/// Older messages are then read from their table.
struct MessagesFile {
    static let name = "messages"

    let directory: any StorageDirectory

    func read() throws(SystemError) -> FollowedPublication? {
        guard let file = try directory.openIfThere(Self.name) else { return nil }
        var bytes = ByteWriter(capacity: 128)
        // SAFETY: `read` initialises as many bytes of the room as it says.
        _ = unsafe try bytes.append(upTo: 128) { room throws(SystemError) in
            unsafe try file.read(into: room, at: 0)
        }
        let words = bytes.bytes.text.split(whereSeparator: \.isWhitespace)
        guard words.count == 4, let number = UInt32(words[0]), number != 0, let since = UInt64(words[1]),
            let offset = UInt64(words[2]), let time = Int64(words[3])
        else { return nil }
        return FollowedPublication(number: number, since: LSN(since), offset: offset, time: time)
    }

    /// Writes the point from which the log has every database message. Nil means that the log does not have every
    /// message any more.
    func write(_ publication: FollowedPublication?) throws(SystemError) {
        var text = ByteWriter(capacity: 128)
        if let publication {
            text.append(
                "\(publication.number) \(publication.since.rawValue) \(publication.offset) \(publication.time)\n")
        }
        try directory.replace(Self.name, with: text.bytes)
    }
}
