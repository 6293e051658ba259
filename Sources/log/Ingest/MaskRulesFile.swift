import Bytes
import Glibc
import System

/// Masking rules of the hub, beside the log's segments. Every reader of the log obeys them, whatever its own settings
/// are.
///
/// A hub writes the file at its start, and removes it if it has no rules. The file is copied with the directory.
public enum MaskRulesFile {
    public static let name = "mask.rules"
    private static let mostBytes: UInt64 = 16 << 20

    /// Returns the rules of a log's directory as text; nil if its hub has none.
    public static func read(in directory: any StorageDirectory) throws(SystemError) -> [UInt8]? {
        do throws(SystemError) {
            return try directory.open(name, for: .reading).contents(atMost: mostBytes)
        } catch {
            if error.code == ENOENT { return nil }
            throw error
        }
    }

    /// Copies the file with the hub's rules into a log's directory; removes the copy if there are no rules. A file that
    /// cannot be read is an error, because the values to mask would be unknown.
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
