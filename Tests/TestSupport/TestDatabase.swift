import Embedded
import Foundation
import Postgres
import Synchronization
import System

/// PostgreSQL cluster that the tests share: it starts with the first use and ends with the process.
public enum TestCluster {
    private static let started = Mutex<PrivateCluster?>(nil)

    public static func shared() throws -> PrivateCluster {
        try started.withLock { started in
            if let started { return started }
            let cluster = try fresh()
            started = cluster
            return cluster
        }
    }

    private static let idle = Mutex<[PrivateCluster]>([])

    /// Lends a cluster that no other test uses at the same time, for tests that end others' connections or change
    /// roles. As many clusters exist as were ever lent at once.
    public static func lend<Result>(_ use: (PrivateCluster) throws -> Result) throws -> Result {
        let cluster = try idle.withLock { $0.popLast() } ?? fresh()
        defer { idle.withLock { $0.append(cluster) } }
        return try use(cluster)
    }

    /// Starts another cluster, for a test that stops or damages it. The clients' roles belong to the whole cluster.
    /// They are created before any test runs, as `sql/` creates them, because `sql/` grants nothing to roles that
    /// others created.
    public static func fresh(
        _ options: PrivateCluster.Options = .forTests, clientRoles: Bool = true
    ) throws -> PrivateCluster {
        let cluster = try PrivateCluster(directory: TemporaryDirectory.make("postgres"), options: options)
        try cluster.start()
        for file in SQLFile.all where clientRoles && file.name.hasPrefix("010_") { try file.apply(cluster.connect()) }
        return cluster
    }
}

extension PrivateCluster.Options {
    public static var forTests: PrivateCluster.Options {
        var options = PrivateCluster.Options()
        options.isThrowaway = true
        // These limits are small, so that tests see streamed transactions without writing gigabytes.
        options.settings = [
            "logical_decoding_work_mem=64kB", "wal_sender_timeout=20s", "max_prepared_transactions=8",
            "max_connections=200",
            "max_replication_slots=40", "max_wal_senders=40",
        ]
        return options
    }
}

/// Directories that are removed when the process ends.
public enum TemporaryDirectory {
    private static let made = Mutex<[String]>([])

    public static func make(_ name: String) -> String {
        // The path is outside of any home directory, because PostgreSQL's user must be able to reach it.
        let path = "/tmp/tidewire-tests-\(getpid())/\(name)-\(UInt32.random(in: 0 ... .max))"
        made.withLock { made in
            if made.isEmpty { atexit { TemporaryDirectory.removeAll() } }
            made.append(path)
        }
        try? Directories.make(path, mode: 0o711)
        return path
    }

    private static func removeAll() {
        try? FileManager.default.removeItem(atPath: "/tmp/tidewire-tests-\(getpid())")
    }
}

/// Database for a single test.
public struct TestDatabase {
    public let cluster: PrivateCluster
    public let name: String
    public let connection: Connection

    public init(on cluster: PrivateCluster? = nil, _ encoding: ServerEncoding = .utf8) throws {
        self.cluster = try cluster ?? TestCluster.shared()
        name = "test_\(UInt32.random(in: 0 ... .max))"
        try self.cluster.connect().execute("CREATE DATABASE \(name) \(encoding.clause)")
        connection = try self.cluster.connect(database: name)
    }

    public var target: ConnectionTarget { cluster.target(database: name) }
    public var url: String { cluster.url(database: name) }
    /// Name of this database's own slot, because slots belong to the whole cluster.
    public var slot: String { name }

    @discardableResult
    public func run(_ sql: String) throws -> Rows { try connection.execute(sql) }

    public func value(_ sql: String) throws -> String? { try connection.execute(sql).first?.first ?? nil }

    /// True if the database's encoding can represent the text.
    public func has(_ text: String) -> Bool { (try? connection.query("SELECT $1::text", [text])) != nil }
}

/// Encoding of a test's database.
public enum ServerEncoding: String, Sendable, CaseIterable {
    case utf8 = "UTF8"
    case sqlASCII = "SQL_ASCII"
    case koi8r = "KOI8R"
    case latin1 = "LATIN1"
    /// Encoding that can represent some characters in two ways.
    case eucTW = "EUC_TW"

    var clause: String { self == .utf8 ? "" : "ENCODING '\(rawValue)' LOCALE 'C' TEMPLATE template0" }

    public static let others = allCases.filter { $0 != .utf8 }
}
