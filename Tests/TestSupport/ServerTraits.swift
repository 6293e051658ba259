import Embedded
import Postgres
import Testing

/// Requirements of a test on its server. The test is skipped if the server does not meet them.
extension Trait where Self == ConditionTrait {
    /// Requires this major version of PostgreSQL or a later one.
    public static func postgres(_ major: Int) -> Self {
        .enabled("PostgreSQL \(major) or later") { try TestServer.major() >= major }
    }

    /// Requires an earlier major version than this one. PostgreSQL 18 and later refuse updates of a table if its stored
    /// generated columns are unpublished and belong to its replica identity (FULL). So a test of such updates needs an
    /// earlier server.
    public static func postgres(before major: Int) -> Self {
        .enabled("a PostgreSQL before \(major)") { try TestServer.major() < major }
    }

    /// Requires collations of ICU, which a build of the server may lack.
    public static var icu: Self {
        .enabled("a PostgreSQL with ICU") { try TestServer.hasICU() }
    }
}

/// Properties of the server that the tests share.
public enum TestServer {
    public static func major() throws -> Int { try TestCluster.shared().connect().serverVersion / 10_000 }

    public static func hasICU() throws -> Bool {
        // The language is one that initdb adds if it finds ICU. Every catalog has some ICU collation, so a search for
        // any proves nothing.
        let found = try TestCluster.shared().connect().execute(
            "SELECT count(*) > 0 FROM pg_collation WHERE collname = 'en-US-x-icu'")
        return found.first?.first == "t"
    }
}
