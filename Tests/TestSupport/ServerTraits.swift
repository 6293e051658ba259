import Embedded
import Postgres
import Testing

/// Conditions on the server that a test runs against. Without them the test is skipped.
extension Trait where Self == ConditionTrait {
    /// Requires this major version or a later one.
    public static func postgres(_ major: Int) -> Self {
        .enabled("PostgreSQL \(major) or later") { try TestServer.major() >= major }
    }

    /// Requires an earlier major version. From PostgreSQL 18 on, no update is possible if a stored generated column is
    /// not published and belongs to the replica identity (FULL). Then there are no changes to test.
    public static func postgres(before major: Int) -> Self {
        .enabled("a PostgreSQL before \(major)") { try TestServer.major() < major }
    }

    /// Requires collations of ICU, which some builds of the server lack.
    public static var icu: Self {
        .enabled("a PostgreSQL with ICU") { try TestServer.hasICU() }
    }
}

/// Differences of the shared test server from other servers.
public enum TestServer {
    public static func major() throws -> Int { try TestCluster.shared().connect().serverVersion / 10_000 }

    public static func hasICU() throws -> Bool {
        // initdb adds ICU's collations for the languages that it finds. Every catalog with ICU has this one.
        let found = try TestCluster.shared().connect().execute(
            "SELECT count(*) > 0 FROM pg_collation WHERE collname = 'en-US-x-icu'")
        return found.first?.first == "t"
    }
}
