import Policy
import TestSupport
import Testing

@testable import Catalog

@Suite(.within(minutes: 10)) struct MadeCastTests {
    private static let table = """
        CREATE TYPE mood AS ENUM ('secret', 'open');
        CREATE TABLE t (id int PRIMARY KEY, m mood);
        ALTER TABLE t ENABLE ROW LEVEL SECURITY;
        GRANT SELECT ON t TO READER;
        """
    private static let cast = """
        CREATE FUNCTION label(mood) RETURNS text LANGUAGE sql IMMUTABLE AS $$
            SELECT CASE $1 WHEN 'secret' THEN 'hidden' ELSE 'shown' END $$;
        CREATE CAST (mood AS text) WITH FUNCTION label(mood);
        """
    private static let policy = "CREATE POLICY p ON t USING ((m)::text <> 'hidden');"

    private func part(_ stage: CatalogStage) throws -> PolicyBinding.Part {
        try #require(try stage.binding(stage.request("t")).policy?.parts.first)
    }

    /// Checks a user-defined cast that PostgreSQL prints like a built-in one. If the hub read it as built-in, it would
    /// show rows that PostgreSQL hides.
    @Test func `a cast that somebody made is PostgreSQL's to decide`() throws {
        let stage = try CatalogStage(Self.table + Self.cast + Self.policy, publication: "FOR TABLE t")
        let found = try part(stage)
        #expect(found.classification == .fallback && found.term == .undecided)
    }

    @Test func `one that is made later is noticed`() throws {
        let stage = try CatalogStage(Self.table + Self.policy, publication: "FOR TABLE t")
        #expect(try part(stage).classification == .compiled)
        try stage.run(Self.cast)
        #expect(try eventually { try part(stage).classification == .fallback })
    }
}
