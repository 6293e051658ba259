import Policy
import TestSupport
import Testing

/// Tests of policies as developers write them, in the form in which PostgreSQL prints them.
@Suite(.serialized, .within(minutes: 10)) struct RealisticPolicyTests {
    private func stage() throws -> CatalogStage {
        let database = try TestDatabase()
        try database.run(RealisticPolicies.schema)
        var stage = try CatalogStage(database)
        try stage.learn(relation: QualifiedName("public", "t"))
        return stage
    }

    @Test func `PostgreSQL reads what was rendered as what it wrote`() throws {
        let stage = try stage()
        for sql in RealisticPolicies.all.map(\.sql) + RealisticPolicies.nearMisses {
            let text = try stage.deparsed(sql, on: "public.t")
            guard let tree = PolicyParser.expression(text) else { continue }
            // PostgreSQL reads `(ARRAY[…])::text[]` as casts of the elements, so the test also prints PostgreSQL's text
            // a second time.
            let read = try stage.deparsed(text, on: "public.t")
            for style in [Renderer.Style.asWritten, .qualified] {
                let again = try stage.deparsed(Renderer.text(tree, style), on: "public.t")
                #expect(again == read, "of \(sql)")
            }
        }
    }

    @Test func `every policy is decided at least as well as it could be`() throws {
        var stage = try stage()
        let order = CompiledPolicy.Classification.allCases
        var counts: [CompiledPolicy.Classification: Int] = [:]
        for sample in RealisticPolicies.all {
            let text = try stage.deparsed(sample.sql, on: "public.t")
            try stage.learn(text)
            let table = try #require(stage.catalog.relations[QualifiedName("public", "t")])
            let policy = PolicyCompiler(stage.catalog).compile(text, on: table)
            counts[policy.classification, default: 0] += 1
            let isAsGood =
                try #require(order.firstIndex(of: policy.classification))
                <= (try #require(order.firstIndex(of: sample.expected)))
            #expect(isAsGood, "\(policy.classification), not \(sample.expected): \(text)")
        }
        print(order.map { "\($0) \(counts[$0] ?? 0)" }.joined(separator: ", "), "of", RealisticPolicies.all.count)
    }

    @Test func `what only looks like a membership stays PostgreSQL's`() throws {
        var stage = try stage()
        for sql in RealisticPolicies.nearMisses {
            guard let text = try? stage.deparsed(sql, on: "public.t") else { continue }
            try stage.learn(text)
            let table = try #require(stage.catalog.relations[QualifiedName("public", "t")])
            let policy = PolicyCompiler(stage.catalog).compile(text, on: table)
            #expect(policy.classification == .fallback, "of \(text): \(policy.term)")
        }
    }
}
