import Embedded
import Postgres
import Testing

/// What a test needs of the server that it runs against: it is left out where that has not got it.
extension Trait where Self == ConditionTrait {
    /// Of this major version or later.
    public static func postgres(_ major: Int) -> Self {
        .enabled("PostgreSQL \(major) or later") { try TestServer.major() >= major }
    }

    /// Of an earlier major version. From PostgreSQL 18 on tables whose generated columns are stored, not published and in their
    /// replica identity (FULL) cannot be updated: there is nothing to be told of them.
    public static func postgres(before major: Int) -> Self {
        .enabled("a PostgreSQL before \(major)") { try TestServer.major() < major }
    }

    /// Collations of ICU: builds of the server may be without.
    public static var icu: Self {
        .enabled("a PostgreSQL with ICU") { try TestServer.hasICU() }
    }
}

/// The server that the tests share, as far as one differs from another.
public enum TestServer {
    public static func major() throws -> Int { try TestCluster.shared().connect().serverVersion / 10_000 }

    public static func hasICU() throws -> Bool {
        // What initdb finds of languages; a collation of ICU stands in every catalog.
        let found = try TestCluster.shared().connect().execute(
            "SELECT count(*) > 0 FROM pg_collation WHERE collname = 'en-US-x-icu'")
        return found.first?.first == "t"
    }
}
