import Bytes
import Glibc
import System

/// File beside the log's segments with the hub's masking rules. Every reader of the log applies them, whatever its own
/// settings are.
///
/// A hub writes the file when it starts, and removes it if it has no rules. A copy of the directory includes the file.
public enum MaskRulesFile {
    public static let name = "mask.rules"
    private static let mostBytes: UInt64 = 16 << 20

    /// Returns the masking rules in a log's directory, as text; nil if there are none.
    public static func read(in directory: any StorageDirectory) throws(SystemError) -> [UInt8]? {
        do throws(SystemError) {
            return try directory.open(name, for: .reading).contents(atMost: mostBytes)
        } catch {
            if error.code == ENOENT { return nil }
            throw error
        }
    }

    /// Copies the hub's file of rules into a log's directory. Removes the copy if the hub has no rules. Throws if the
    /// file cannot be read, because the values to mask would be unknown.
    static func keep(_ path: String?, in directory: any StorageDirectory) throws(SystemError) {
        guard let path else {
            do throws(SystemError) {
                try directory.remove(name)
            } catch {
                if error.code != ENOENT { throw error }
            }
            return
        }
        let text = try DiskDirectory(Directories.parent(of: path))
            .open(path.split(separator: "/").last.map(String.init) ?? path, for: .reading).contents(atMost: mostBytes)
        guard try read(in: directory) != text else { return }
        try directory.replace(name, with: text.rawBytes)
    }
}
