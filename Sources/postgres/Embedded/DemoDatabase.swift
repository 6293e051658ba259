import Postgres
import System

/// Private database that looks like a Supabase database, with five example applications and the demo in it.
public struct DemoDatabase: Sendable {
    /// Person in the demo who can log in.
    public struct Person: Sendable {
        public let name: String
        public let id: String
    }

    /// Person who sees all orders because of the claim `app_metadata.staff`.
    public static let staff = Person(name: "cleo", id: "00000000-0000-4000-8000-00000000c1e0")

    public static let people = [
        Person(name: "ana", id: "00000000-0000-4000-8000-00000000a0a0"),
        Person(name: "ben", id: "00000000-0000-4000-8000-00000000be00"),
    ]

    public let cluster: PrivateCluster
    /// URL with the hub's own login, which has only the necessary privileges.
    public let hubURL: String
    /// URL with the login that evaluates policies.
    public let policyURL: String
    public var superuserURL: String { cluster.url() }

    /// Applies `sql/` to the running cluster. Applying it again changes nothing.
    public init(in cluster: PrivateCluster) throws {
        self.cluster = cluster
        let password = try PersistentSecret.read("\(cluster.directory)/hub_password")
        let policyPassword = try PersistentSecret.read("\(cluster.directory)/policy_password")
        let connection = try cluster.connect()
        for file in SQLFile.foundation + SQLFile.scenarios + SQLFile.demo { try file.apply(connection) }
        hubURL = try DemoDatabase.url("tidewire", password, cluster, connection)
        policyURL = try DemoDatabase.url("tidewire_policies", policyPassword, cluster, connection)
    }

    /// Creates the objects of the incident that `tidewire dev --incident` shows. Also makes the replication stream
    /// report changes of policies in the transactions that make them.
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

    /// Makes one small change, as the applications would. Returns its description.
    public static func step(_ connection: Connection) throws(PostgresError) -> String {
        try connection.query("SELECT demo.step()").first?.first.flatMap { $0 } ?? ""
    }
}

/// Secret that is created once and stored in a file beside the data that it protects.
public enum PersistentSecret {
    public static func read(_ path: String) throws(SystemError) -> String {
        if SmallFile.exists(path) { return try SmallFile.read(path) }
        var generator = SystemRandomNumberGenerator()
        let secret = (0..<4).map { _ in String(generator.next() as UInt64, radix: 36) }.joined()
        try SmallFile.write(path, secret)
        return secret
    }
}

/// Thread that makes occasional changes in the demo's tables until it is stopped.
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
        // The intervals are random, like those between actions of people.
        while !interrupt.sleep(milliseconds: Int.random(in: interval / 2...interval * 3 / 2)) {
            do {
                if connection == nil {
                    connection = try Connection(target, applicationName: "tidewire demo", interrupt: interrupt)
                }
                if let connection { _ = try DemoDatabase.step(connection) }
            } catch {
                // The database may be restarting, or the step may have lost a conflict with another writer. The next
                // step tries again.
                connection = nil
            }
        }
    }
}
