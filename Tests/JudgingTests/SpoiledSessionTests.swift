import TestSupport
import Testing

@testable import Catalog
@testable import Judging

/// Tests of the functions that policies call. Their authors can run code in the session that evaluates policies.
/// Effects that outlast the transaction must not change answers about other policies.
@Suite(.within(minutes: 10)) struct SpoiledSessionTests {
    /// SQL of a function that replaces every prepared statement by one that shows the first rows to the first subject.
    private static let thief = """
        CREATE FUNCTION thief() RETURNS boolean LANGUAGE plpgsql AS $$
        DECLARE name text;
        BEGIN
            FOR name IN SELECT s.name FROM pg_prepared_statements s WHERE s.name LIKE 'tidewire%' LOOP
                EXECUTE format('DEALLOCATE %I', name);
                EXECUTE format('PREPARE %I AS SELECT ''1''::text, NULL::text, NULL::text, ''1 2 3''::text', name);
            END LOOP;
            RETURN true;
        END $$;
        CREATE FUNCTION destroyer() RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            DEALLOCATE ALL;
            RETURN true;
        END $$;
        """

    /// Asks more often than there are connections, so that each connection is used.
    private func ask(_ judge: PolicyEvaluator, _ policy: JudgedPolicy, _ subject: PolicySubject) -> [Bool?] {
        (0..<6).map { _ in judge.answers(policy, [["1"]], [subject]).first?.first ?? nil }
    }

    @Test(arguments: ["thief()", "destroyer()"])
    func `a policy's function answers for no other policy`(function: String) throws {
        let stage = try JudgingStage(Self.thief)
        let judge = try stage.judge()
        let closed = try stage.judged("id < 0")
        let open = try stage.judged("id > 0")
        let subject = stage.subject(sub: 1)
        #expect(ask(judge, closed, subject).allSatisfy { $0 == false })
        let spoiling = ask(judge, try stage.judged("id > 0 AND \(function)"), subject)
        #expect(spoiling.allSatisfy { $0 == nil }, "what it says of its own rows does not count either")
        #expect(ask(judge, closed, subject).allSatisfy { $0 == false })
        #expect(ask(judge, open, subject).allSatisfy { $0 == true })
    }

    @Test func `nor where no function can be made`() throws {
        let stage = try JudgingStage(Self.thief)
        try stage.run("REVOKE TEMPORARY ON DATABASE \(stage.database.name) FROM PUBLIC")
        let judge = try stage.judge()
        let closed = try stage.judged("id < 0")
        let subject = stage.subject(sub: 1)
        #expect(ask(judge, closed, subject).allSatisfy { $0 == false })
        _ = ask(judge, try stage.judged("id > 0 AND thief()"), subject)
        #expect(ask(judge, closed, subject).allSatisfy { $0 == false })
    }
}
