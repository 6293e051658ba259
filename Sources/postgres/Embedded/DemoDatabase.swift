import Postgres
import System

/// A database of our own that looks like a Supabase one, with the five applications and the demo in it.
public struct DemoDatabase: Sendable {
    /// A person who takes part in the demo and may log in.
    public struct Person: Sendable {
        public let name: String
        public let id: String
    }

    /// Person who sees everybody's orders by a claim, `app_metadata.staff`.
    public static let staff = Person(name: "cleo", id: "00000000-0000-4000-8000-00000000c1e0")

    public static let people = [
        Person(name: "ana", id: "00000000-0000-4000-8000-00000000a0a0"),
        Person(name: "ben", id: "00000000-0000-4000-8000-00000000be00"),
    ]

    public let cluster: PrivateCluster
    /// The hub's own, least privileged login.
    public let hubURL: String
    /// The login that policies run as.
    public let policyURL: String
    public var superuserURL: String { cluster.url() }

    /// Applies `sql/` to the running cluster; a second time nothing changes.
    public init(in cluster: PrivateCluster) throws {
        self.cluster = cluster
        let password = try PersistentSecret.read("\(cluster.directory)/hub_password")
        let policyPassword = try PersistentSecret.read("\(cluster.directory)/policy_password")
        let connection = try cluster.connect()
        for file in SQLFile.foundation + SQLFile.scenarios + SQLFile.demo { try file.apply(connection) }
        hubURL = try DemoDatabase.url("tidewire", password, cluster, connection)
        policyURL = try DemoDatabase.url("tidewire_policies", policyPassword, cluster, connection)
    }

    /// Makes the place of the incident, and has the stream tell when a policy changes, to the transaction.
    public func prepareIncident() throws(PostgresError) {
        let connection = try cluster.connect()
        for file in SQLFile.extras + SQLFile.incident { try file.apply(connection) }
    }

    private static func url(
        _ role: String, _ password: String, _ cluster: PrivateCluster, _ connection: Connection
    ) throws(PostgresError) -> String {
        try connection.execute("ALTER ROLE \(role) PASSWORD \(Quoted.literal(password))")
        return cluster.url(user: role, password: password)
    }

    /// One small thing happens, as it would in the applications; what it was.
    public static func step(_ connection: Connection) throws(PostgresError) -> String {
        try connection.query("SELECT demo.step()").first?.first.flatMap { $0 } ?? ""
    }
}

/// A secret that is made once and kept beside the data it opens.
public enum PersistentSecret {
    public static func read(_ path: String) throws(SystemError) -> String {
        if SmallFile.exists(path) { return try SmallFile.read(path) }
        var generator = SystemRandomNumberGenerator()
        let secret = (0..<4).map { _ in String(generator.next() as UInt64, radix: 36) }.joined()
        try SmallFile.write(path, secret)
        return secret
    }
}

/// A gentle life in the demo's tables until it is stopped.
public final class DemoActivity: Sendable {
    private let interrupt: Wake
    private let thread: BackgroundThread

    public init(_ target: ConnectionTarget, everyMilliseconds interval: Int) throws(SystemError) {
        let interrupt = try Wake()
        self.interrupt = interrupt
        thread = try BackgroundThread("activity") { DemoActivity.run(target, interval, interrupt) }
    }

    public func stop() {
        interrupt.ring()
        thread.join()
    }

    private static func run(_ target: ConnectionTarget, _ interval: Int, _ interrupt: Wake) {
        var connection: Connection?
        // Uneven, as people are.
        while !interrupt.sleep(milliseconds: Int.random(in: interval / 2...interval * 3 / 2)) {
            do {
                if connection == nil {
                    connection = try Connection(target, applicationName: "tidewire demo", interrupt: interrupt)
                }
                if let connection { _ = try DemoDatabase.step(connection) }
            } catch {
                // The database may be restarting, and a step may lose against another writer: the next one tries again.
                connection = nil
            }
        }
    }
}
