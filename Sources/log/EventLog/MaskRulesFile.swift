import Bytes
import Glibc
import System

/// Masking rules of a log's hub, in a file beside the segments. Every reader of the log obeys them, whatever its own
/// settings are.
///
/// A hub writes the file at its start and when it reads its settings again, also if it has no rules of its own. A copy
/// of the directory has the file too. The first line has the size and a checksum of the rest, so that readers notice
/// damage:
///
///     # tidewire mask rules, 15 bytes, crc32c 1f3a90c2
///     users.diagnosis
public enum MaskRulesFile {
    public static let name = "mask.rules"
    /// Largest size of a file with rules.
    public static let mostBytes = 16 << 20
    private static let heading = "# tidewire mask rules, "

    /// Returns the rules of a log's directory as text; nil if there is no such file, because no hub or only a former
    /// version wrote the log.
    public static func read(in directory: any StorageDirectory) throws(MaskRulesFailure) -> [UInt8]? {
        let path = "\(directory.path)/\(name)"
        let contents: [UInt8]
        do throws(SystemError) {
            contents = try directory.open(name, for: .reading).contents(atMost: UInt64(mostBytes + 100))
        } catch {
            if error.code == ENOENT { return nil }
            throw MaskRulesFailure(path: path, reason: "\(error)")
        }
        // A larger file is read in part, and its checksum does not fit.
        guard let text = text(in: contents) else { throw MaskRulesFailure(path: path, reason: nil) }
        return text
    }

    /// Writes the rules, durably and at once. Returns false if the file has them already.
    @discardableResult
    public static func write(_ text: [UInt8], in directory: any StorageDirectory) throws(SystemError) -> Bool {
        let contents = contents(of: text)
        if let file = try? directory.open(name, for: .reading),
            (try? file.contents(atMost: UInt64(contents.count + 1))) == contents
        {
            return false
        }
        try directory.replace(name, with: contents.rawBytes)
        return true
    }

    /// Returns the contents of a file with these rules.
    public static func contents(of text: [UInt8]) -> [UInt8] {
        let sum = String(Hex.text(UInt64(CRC32C.of(text.rawBytes))).suffix(8))
        return Array("\(heading)\(text.count) bytes, crc32c \(sum)\n".utf8) + text
    }

    /// Returns the rules in the contents of such a file; nil if they are damaged. Former versions wrote no first line
    /// with a checksum.
    public static func text(in contents: [UInt8]) -> [UInt8]? {
        guard contents.starts(with: heading.utf8) else {
            // An empty file, or one that ends within the first line, was cut off.
            return heading.utf8.starts(with: contents) ? nil : contents
        }
        guard let end = contents.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
        let text = Array(contents[(end + 1)...])
        return self.contents(of: text) == contents ? text : nil
    }
}

/// Reason why the rules of a log's hub are unknown, so that no value of the log can be shown.
public struct MaskRulesFailure: Error, Sendable, CustomStringConvertible {
    public let path: String
    /// Reason why the file cannot be read; nil if it is damaged.
    public let reason: String?

    public var description: String {
        guard let reason else {
            return "\(path) is damaged, so the columns to mask are unknown"
        }
        return "the mask rules of the log's hub cannot be read, so the columns to mask are unknown: \(reason)"
    }
}
