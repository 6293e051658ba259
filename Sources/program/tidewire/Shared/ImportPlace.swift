import Console
import EventLog
import Glibc
import Ingest
import System

/// Temporary directory in which `tidewire log import` writes a log. It lies beside the final directory, and gets that
/// name once the log is complete and durable. If an import is interrupted, the final directory has the whole log or
/// none. The next import removes the remains.
final class ImportPlace {
    let directory: DiskDirectory
    private let path: String
    private let aside: String
    private var locks: [any StorageLock] = []

    /// Name of the lock file that shows that an import is running.
    private static let mark = "IMPORT"
    /// Name of the lock file that may lie in a directory that has no log yet.
    private static let lock = "LOCK"

    /// Creates the temporary directory beside `path`, the final directory of the log.
    /// - Parameter dataDirectory: the data directory of the hub that will use the log; nil for none. That hub must not
    ///   run during the import.
    init(_ path: String, dataDirectory: String?) throws {
        let path = path.count > 1 && path.hasSuffix("/") ? String(path.dropLast()) : path
        self.path = path
        aside = path + ".import"
        do {
            if let dataDirectory { locks.append(try IngestService.lock(dataDirectory)) }
            try ImportPlace.requireEmpty(path)
            try Directories.make(Directories.parent(of: path))
            directory = try DiskDirectory(aside, creating: true)
            switch try directory.lock(Self.mark) {
            case .taken(let lock): locks.append(lock)
            case .heldElsewhere(let process):
                throw CommandFailure(
                    .notFound, "\(process.map { "process \($0)" } ?? "another process") is importing into \(path)",
                    hint: "Wait for it, or choose another directory with --data-dir or --log.")
            }
            for name in try directory.names() where name != Self.mark { try directory.remove(name) }
        } catch let error as SystemError {
            throw CommandFailure(.unreachable, "\(error)", hint: error.advice)
        }
    }

    private static func requireEmpty(_ path: String) throws {
        guard let names = try names(path), !names.allSatisfy({ $0 == lock }) else { return }
        throw CommandFailure(
            .notFound, "\(path) is not empty: an import needs a directory without a log",
            hint: "Choose another directory with --data-dir or --log.")
    }

    /// Returns the names of the files in a directory; nil if the directory does not exist.
    private static func names(_ path: String) throws(SystemError) -> [String]? {
        let directory: DiskDirectory
        do {
            directory = try DiskDirectory(path)
        } catch {
            if error.code == ENOENT { return nil }
            throw error
        }
        return try directory.names()
    }

    /// Renames the directory with the complete and durable log to its final name.
    func keep() throws {
        do throws(SystemError) {
            try directory.remove(Self.mark)
            try directory.sync()
            try? DiskDirectory(path).remove(Self.lock)
            try Directories.move(aside, to: path)
        } catch {
            throw CommandFailure(
                .notFound, "cannot move the imported log to \(path): \(error)",
                hint: "Did another process make a log there meanwhile?")
        }
    }

    /// Removes the temporary directory with everything in it.
    func clear() {
        for name in (try? directory.names()) ?? [] { try? directory.remove(name) }
        try? Directories.remove(aside)
    }
}
