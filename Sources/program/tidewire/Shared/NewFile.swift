import Bytes
import Console
import Glibc
import System

/// File that gets its name only when it is complete. The command writes it beside its final name, with the suffix
/// `.partial`, and syncs it before it renames it. Until then, an older file keeps the name.
final class NewFile {
    private let directory: DiskDirectory
    private let file: any StorageFile
    private let name: String
    private var pending = ByteWriter(capacity: 64 << 10)
    private var position: UInt64 = 0
    private var isKept = false

    private static let together = 64 << 10

    init(_ path: String) throws {
        guard !path.isEmpty, !path.hasSuffix("/"), !Directories.isDirectory(path) else {
            throw UsageError("\(path): expected the name of a file")
        }
        // Special files such as /dev/stdout must not be replaced.
        guard !Directories.isThere(path) || Directories.isFile(path) else {
            throw UsageError("\(path) exists, and is not a regular file")
        }
        do throws(SystemError) {
            let whole = try Directories.absolute(path)
            name = whole.split(separator: "/").last.map(String.init) ?? whole
            directory = try DiskDirectory(Directories.parent(of: whole))
            file = try directory.open(name + ".partial", for: .creating)
        } catch {
            throw Self.failure(error)
        }
    }

    deinit {
        if !isKept { try? directory.remove(name + ".partial") }
    }

    func write(line: String) throws {
        pending.append(line)
        pending.append("\n")
        if pending.count >= Self.together { try flush() }
    }

    func write(_ bytes: [UInt8]) throws {
        pending.append(bytes)
        if pending.count >= Self.together { try flush() }
    }

    /// Syncs the complete file and renames it to its final name, in place of an older file.
    func keep() throws {
        try flush()
        do throws(SystemError) {
            try file.sync()
            try directory.rename(name + ".partial", to: name)
            isKept = true
            try directory.sync()
        } catch {
            throw Self.failure(error)
        }
    }

    private func flush() throws {
        // The buffer is swapped out of the object, because a stored property cannot be borrowed here.
        var written = ByteWriter(capacity: Self.together)
        swap(&written, &pending)
        do throws(SystemError) {
            try file.write(written.bytes, at: position)
        } catch {
            throw Self.failure(error)
        }
        position += UInt64(written.count)
    }

    private static func failure(_ error: SystemError) -> CommandFailure {
        CommandFailure(.notFound, "cannot write the file: \(error)", hint: error.advice)
    }
}
