import Bytes
import Cluster
import System

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
        case whole(StreamMark)
        case damaged
    }

    func read() throws(SystemError) -> Content {
        guard let file = try directory.openIfThere(Self.name) else { return .none }
        var bytes = ByteWriter(capacity: Self.maximumBytes)
        // SAFETY: `read` initialises as many bytes of the room as it says.
        _ = unsafe try bytes.append(upTo: Self.maximumBytes) { room throws(SystemError) in
            unsafe try file.read(into: room, at: 0)
        }
        return Self.decode(bytes.bytes).map { .whole($0) } ?? .damaged
    }

    static func decode(_ bytes: RawSpan) -> StreamMark? {
        let lines = bytes.text.split(separator: "\n").map { $0.split(separator: " ") }
        guard lines.count == 5, lines.allSatisfy({ $0.count == 2 }), lines[4][0] == "checksum",
            let checksum = UInt32(lines[4][1], radix: 16)
        else { return nil }
        let end = bytes.byteCount - "checksum \(lines[4][1])\n".utf8.count
        guard end > 0, CRC32C.of(bytes.extracting(0..<end)) == checksum, lines[0][0] == "log",
            let log = ClusterLogID(lines[0][1]), lines[1][0] == "sequence", let sequence = UInt64(lines[1][1]),
            lines[2][0] == "chain", lines[3][0] == "tenure", let tenure = UInt64(lines[3][1])
        else { return nil }
        return StreamMark(log: log, sequence: sequence, chain: ClusterChain(lines[2][1]), tenure: tenure)
    }

    func write(_ mark: StreamMark) throws(SystemError) {
        var text = ByteWriter(capacity: 256)
        text.append("log \(mark.log)\nsequence \(mark.sequence)\n")
        text.append("chain \(mark.chain.map { "\($0)" } ?? "unknown")\ntenure \(mark.tenure)\n")
        text.append("checksum \(String(CRC32C.of(text.bytes), radix: 16))\n")
        try directory.replace(Self.name, with: text.bytes)
    }
}
