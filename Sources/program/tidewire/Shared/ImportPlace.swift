import Console
import EventLog
import Glibc
import Ingest
import System

/// Directory in which an imported log is made. It lies beside the log's own directory, and is renamed once the log is
/// complete and durable. Whatever stops an import, the log's directory has the whole log or none. The next import
/// removes the remains.
final class ImportPlace {
    let directory: DiskDirectory
    private let path: String
    private let aside: String
    private var locks: [any StorageLock] = []

    /// Lock file that marks a running import.
    private static let mark = "IMPORT"
    /// File that a directory without a log may contain.
    private static let lock = "LOCK"

    /// - Parameter dataDirectory: the data directory of the hub that will use the log; nil for none. That hub must not
    ///   run meanwhile.
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

    /// Returns the names in a directory; nil if it does not exist.
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

    /// Moves the complete and durable log to its place.
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

    /// Removes the directory with everything in it.
    func clear() {
        for name in (try? directory.names()) ?? [] { try? directory.remove(name) }
        try? Directories.remove(aside)
    }
}
