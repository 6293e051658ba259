import Bytes
import Change
import Cluster
import EventLog
import System

/// Place at which a log stands that has everything up to a message of the stream.
struct StreamEnd: Equatable {
    var place: EventLogPosition
    var position: LSN

    static let unknown = StreamEnd(place: EventLogPosition(epoch: 0, offset: 0), position: .zero)
}

/// File beside the log's segments that says up to which message of the cluster's stream the log has everything. It has
/// lines of text and a checksum, and is replaced as a whole.
///
/// The log may have more than the file says, because the file is written less often. What is read again then is passed
/// over.
struct ReplicaFile {
    static let name = "replica"
    private static let maximumBytes = 1024

    let directory: any StorageDirectory

    enum Content: Equatable {
        case none
        case whole(StreamMark, StreamEnd)
        case damaged
    }

    func read() throws(SystemError) -> Content {
        guard let file = try directory.openIfThere(Self.name) else { return .none }
        var bytes = ByteWriter(capacity: Self.maximumBytes)
        // SAFETY: `read` initialises as many bytes of the room as it says.
        _ = unsafe try bytes.append(upTo: Self.maximumBytes) { room throws(SystemError) in
            unsafe try file.read(into: room, at: 0)
        }
        return Self.decode(bytes.bytes).map { .whole($0.mark, $0.end) } ?? .damaged
    }

    static func decode(_ bytes: RawSpan) -> (mark: StreamMark, end: StreamEnd)? {
        let lines = bytes.text.split(separator: "\n").map { $0.split(separator: " ") }
        guard lines.count == 7, lines.allSatisfy({ $0.count == 2 }), lines[6][0] == "checksum",
            let checksum = UInt32(lines[6][1], radix: 16)
        else { return nil }
        let end = bytes.byteCount - "checksum \(lines[6][1])\n".utf8.count
        guard end > 0, CRC32C.of(bytes.extracting(0..<end)) == checksum, lines[0][0] == "log",
            let log = ClusterLogID(lines[0][1]), lines[1][0] == "sequence", let sequence = UInt64(lines[1][1]),
            lines[2][0] == "chain", lines[3][0] == "tenure", let tenure = UInt64(lines[3][1]), lines[4][0] == "end",
            let place = EventLogPosition(lines[4][1]), lines[5][0] == "lsn", let position = LSN(lines[5][1])
        else { return nil }
        return (
            StreamMark(log: log, sequence: sequence, chain: ClusterChain(lines[2][1]), tenure: tenure),
            StreamEnd(place: place, position: position)
        )
    }

    func write(_ mark: StreamMark, _ end: StreamEnd) throws(SystemError) {
        var text = ByteWriter(capacity: 256)
        text.append("log \(mark.log)\nsequence \(mark.sequence)\n")
        text.append("chain \(mark.chain.map { "\($0)" } ?? "unknown")\ntenure \(mark.tenure)\n")
        text.append("end \(end.place)\nlsn \(end.position)\n")
        text.append("checksum \(String(CRC32C.of(text.bytes), radix: 16))\n")
        try directory.replace(Self.name, with: text.bytes)
    }
}

extension ReplicaFile.Content {
    /// Returns the place of the stream up to which the log has everything. Throws if the stream cannot continue the log.
    ///
    /// - Parameters:
    ///   - hasLog: true if the node's log has begun.
    ///   - stream: the stream; nil if the servers have none.
    func place(hasLog: Bool, in stream: ClusterStream?) throws(Replica.Diverged) -> (StreamMark, StreamEnd) {
        guard let stream else {
            throw Replica.Diverged(
                kind: .streamMissing, words: "it follows a stream, and the servers have no stream for this project")
        }
        let start = StreamMark(
            log: stream.log, sequence: max(1, stream.first) - 1, chain: stream.first <= 1 ? ClusterChain() : nil)
        switch self {
        case .none where !hasLog || stream.last == 0: return (start, .unknown)
        case .none:
            throw Replica.Diverged(
                kind: .otherLog, words: "the log was begun before this node belonged to the cluster")
        // The log itself says what it has: reading begins again at the stream's start.
        case .damaged: return (start, .unknown)
        // A log that has not begun has nothing to lose.
        case .whole(let mark, _) where !hasLog && mark.log != stream.log: return (start, .unknown)
        case .whole(let mark, _) where mark.log != stream.log:
            throw Replica.Diverged(
                kind: .otherStream, words: "it belongs to log \(mark.log), the stream to log \(stream.log)")
        case .whole(let mark, _) where mark.sequence > stream.last:
            throw Replica.Diverged(
                words: "it has message \(mark.sequence), and the stream ends at message \(stream.last)")
        case .whole(let mark, _) where mark.sequence + 1 < stream.first:
            throw Replica.Diverged(
                kind: .olderThanStream,
                words:
                    "it has everything up to message \(mark.sequence), and the stream begins at message \(stream.first)"
            )
        case .whole(let mark, let end): return (mark, end)
        }
    }

    /// True if a node with this file may make the stream if it is missing: its log follows none.
    func mayMakeStream(hasLog: Bool) -> Bool { !hasLog || self == .none }
}
