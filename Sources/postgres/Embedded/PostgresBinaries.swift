import Glibc
import System

/// Error that prevents a private PostgreSQL from running, with advice.
public struct EmbeddedError: Error, Sendable, CustomStringConvertible {
    public var message: String
    public var hint: String

    public init(_ message: String, hint: String) {
        self.message = message
        self.hint = hint
    }

    public var description: String { "\(message); \(hint)" }
}

/// Directory with the programs of a PostgreSQL server.
public struct PostgresBinaries: Sendable {
    public let directory: String

    public func path(_ program: String) -> String { directory + "/" + program }

    /// Finds the newest installed version: in `TIDEWIRE_PG_BINDIR`, or in the directories of Debian's and PostgreSQL's
    /// own packages.
    public static func find() throws(EmbeddedError) -> PostgresBinaries {
        // SAFETY: getenv's string is copied at once.
        if let named = unsafe getenv("TIDEWIRE_PG_BINDIR").map({ unsafe String(cString: $0) }) {
            let binaries = PostgresBinaries(directory: named)
            guard binaries.isComplete else {
                throw EmbeddedError("no initdb and postgres in \(named)", hint: "correct TIDEWIRE_PG_BINDIR")
            }
            return binaries
        }
        let versions = names(in: "/usr/lib/postgresql").compactMap { Int($0) }.sorted(by: >)
        let places =
            versions.map { "/usr/lib/postgresql/\($0)/bin" } + ["/usr/local/pgsql/bin", "/usr/local/bin", "/usr/bin"]
        for place in places where PostgresBinaries(directory: place).isComplete {
            return PostgresBinaries(directory: place)
        }
        throw EmbeddedError(
            "no PostgreSQL server is installed", hint: "apt-get install postgresql, or set TIDEWIRE_PG_BINDIR")
    }

    private var isComplete: Bool {
        ["initdb", "postgres"].allSatisfy { SmallFile.isExecutable(path($0)) }
    }

    private static func names(in directory: String) -> [String] {
        guard let directory = try? DiskDirectory(directory) else { return [] }
        return (try? directory.names()) ?? []
    }
}
