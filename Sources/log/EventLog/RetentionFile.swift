import Bytes
import System

/// File beside the segments with the retention settings of the log's hub. Commands that describe the log read it.
public struct RetentionFile: Sendable, Equatable {
    public static let name = "retention"

    /// Time in seconds for which the hub keeps entries; nil without a limit.
    public var seconds: Int64?
    /// Maximum size of the log in bytes; nil without a limit.
    public var bytes: Int64?

    public init(seconds: Int64?, bytes: Int64?) {
        self.seconds = seconds
        self.bytes = bytes
    }

    /// Reads the file in a log's directory; nil if it is missing or cannot be read.
    public init?(in directory: any StorageDirectory) {
        guard let contents = try? directory.open(Self.name, for: .reading).contents(atMost: 4096) else { return nil }
        var numbers: [Substring: Int64?] = [:]
        for line in String(decoding: contents, as: UTF8.self).split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 2 else { return nil }
            numbers[words[0]] = .some(words[1] == "none" ? nil : Int64(words[1]))
            guard words[1] == "none" || Int64(words[1]) != nil else { return nil }
        }
        guard let seconds = numbers["seconds"], let bytes = numbers["bytes"] else { return nil }
        self.init(seconds: seconds, bytes: bytes)
    }

    private var contents: [UInt8] {
        let words = [("seconds", seconds), ("bytes", bytes)].map { "\($0) \($1.map { String($0) } ?? "none")\n" }
        return Array(words.joined().utf8)
    }

    /// Writes the file, unless it has the same content already.
    public func write(in directory: any StorageDirectory) throws(SystemError) {
        guard RetentionFile(in: directory) != self else { return }
        try directory.replace(Self.name, with: contents.rawBytes)
    }
}
