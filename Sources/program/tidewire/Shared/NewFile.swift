import Bytes
import Console
import Glibc
import System

/// A file that a command writes, which has its name once all of it is there: written beside it, with `.partial` behind the
/// name, and made durable first. What had the name before has it until then.
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
        // What is no file, such as /dev/stdout, is not to be replaced by one.
        guard !Directories.isThere(path) || Directories.isFile(path) else {
            throw UsageError("\(path) is there, and is no file")
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

    /// It is whole: it gets its name.
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
        // Out of the object: what an object holds cannot be lent out.
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
        CommandFailure(.notFound, "the file cannot be written: \(error)")
    }
}
