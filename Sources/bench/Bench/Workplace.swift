import Glibc
import System

/// Temporary directory for a benchmark's files. It is removed when the benchmark ends.
final class Workplace: Sendable {
    let path: String

    init(below directory: String, for purpose: String = "bench") throws {
        guard directory.hasPrefix("/") else {
            throw BenchFailure("\(directory) is no absolute path", hint: "give --dir from the root on")
        }
        path = directory + "/tidewire-\(purpose).\(getpid())"
        try Directories.make(path)
        // If this process is root, PostgreSQL runs as another user, who must be able to pass through the directory.
        // SAFETY: Swift passes a C string that lives for the call.
        _ = unsafe chmod(path, 0o711)
        let kind = Machine.fileSystem(of: path)
        if kind == "tmpfs" || kind == "ramfs" {
            Self.remove(path)
            throw BenchFailure(
                "\(directory) is in memory (\(kind)): syncing there costs nothing",
                hint: "name a directory on a disk with --dir")
        }
    }

    deinit { Self.remove(path) }

    func directory(_ name: String) throws -> DiskDirectory { try DiskDirectory(path + "/" + name, creating: true) }

    func remove(_ name: String) { Self.remove(path + "/" + name) }

    private static func remove(_ path: String) {
        _ = try? ChildProcess(["rm", "-rf", "--", path]).wait()
    }
}

/// Reader of small files of the kernel, such as those in /proc.
enum TextFile {
    static func read(_ path: String) -> String? {
        let parts = path.split(separator: "/")
        let parent = "/" + parts.dropLast().joined(separator: "/")
        guard let name = parts.last, let directory = try? DiskDirectory(parent),
            let file = try? directory.open(String(name), for: .reading)
        else { return nil }
        // SAFETY: the file fills the first `count` bytes of the temporary buffer, and only those are read.
        return unsafe withUnsafeTemporaryAllocation(byteCount: 256 << 10, alignment: 1) { buffer in
            let count = unsafe (try? file.read(into: buffer, at: 0)) ?? 0
            return unsafe String(decoding: buffer.prefix(count), as: UTF8.self)
        }
    }

    /// Returns the rest of the first line that begins with this word, from the file at `path`; nil if there is none.
    static func line(_ word: String, in path: String) -> String? {
        guard let text = read(path) else { return nil }
        for line in text.split(separator: "\n") where line.hasPrefix(word) {
            return String(line.dropFirst(word.count).drop { " \t:".contains($0) })
        }
        return nil
    }
}
