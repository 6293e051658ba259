import Postgres
import TestSupport
import Testing

@testable import Policy

/// Checks that each function gives the same result as PostgreSQL.
@Suite(.serialized, .within(minutes: 10)) struct FunctionOracleTests {
    private static let symbols = [
        "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "->", "->>", "#>", "#>>", "?", "?|", "?&", "@>",
        "<@", "&&", "||", "~~", "!~~", "~~*", "!~~*",
    ]

    @Test(arguments: seeds(1)) func `operators do what PostgreSQL's do`(seed: Seed) throws {
        let oracle = try TermOracle(seed: seed)
        var found = 0
        for left in Kind.all {
            for right in Kind.all {
                guard left.collation == right.collation || left.collation == .none || right.collation == .none else {
                    continue
                }
                let collation = left.collation == .none ? right.collation : left.collation
                for symbol in Self.symbols {
                    guard
                        let function = Function.infix(
                            symbol, left.type, right.type, collation, text: .plainUTF8, timeZone: "UTC")
                    else { continue }
                    found += 1
                    let collate = left.collation == .none ? "" : left.collate
                    try oracle.examine(
                        function, [left, right],
                        "CAST(($1)[1] AS \(left.sql))\(collate) \(symbol) CAST(($1)[2] AS \(right.sql))")
                }
            }
        }
        print("\(found) operators, \(oracle.counts)")
        #expect(found > 200)
    }

    @Test(arguments: seeds(1)) func `casts do what PostgreSQL's do`(seed: Seed) throws {
        let oracle = try TermOracle(seed: seed)
        let words = Kind.all.flatMap(\.values)
        var found = 0
        for from in Kind.all {
            for to in Kind.all {
                guard let function = Function.cast(from.type, to: to.type, text: .utf8, timeZone: "UTC") else {
                    continue
                }
                found += 1
                var from = from
                if from.type.oid == TypeOID.text {
                    from.collate += " "
                    from.values = words
                }
                try oracle.examine(
                    function, [from], "CAST(CAST(($1)[1] AS \(from.sql)) AS \(to.sql))",
                    limit: from.type.isText ? 600 : 60)
            }
        }
        print("\(found) casts, \(oracle.counts)")
        #expect(found > 60)
    }

    @Test(arguments: seeds(1)) func `functions do what PostgreSQL's do`(seed: Seed) throws {
        let oracle = try TermOracle(seed: seed)
        var text = Kind(Kind.of(25))
        text.values += ["a/b/c", "/", "a//b", "aXbXc", "  x  ", "aa", "ab ab", "NULL", "null"]
        var small = Kind(Kind.of(23))
        small.values = ["0", "1", "2", "3", "-1", "-2", "7"]
        let bytewise = Kind(
            Subject.all.first { $0.column.collation == .bytewise && $0.column.type.oid == 25 } ?? Kind.of(25))
        let calls: [(String, [Kind])] = [
            ("lower", [text]), ("upper", [text]), ("lower", [bytewise]), ("upper", [bytewise]),
            ("string_to_array", [text, text]), ("split_part", [text, text, small]), ("length", [text]),
            ("char_length", [text]), ("btrim", [text]), ("ltrim", [text]), ("rtrim", [text]), ("btrim", [text, text]),
            ("ltrim", [text, text]), ("rtrim", [text, text]), ("replace", [text, text, text]),
            ("starts_with", [text, text]),
        ]
        for (name, kinds) in calls {
            let function = try #require(
                Function.named(name, kinds.map(\.type), kinds[0].collation, text: .plainUTF8), "\(name)")
            let arguments = kinds.enumerated().map { "CAST(($1)[\($0 + 1)] AS \($1.sql))\($1.collate)" }
            try oracle.examine(function, kinds, "\(name)(\(arguments.joined(separator: ", ")))", limit: 400)
        }
        for array in Kind.all where array.type.element != nil {
            for (name, kinds) in [("cardinality", [array]), ("array_length", [array, small])] {
                let function = try #require(
                    Function.named(name, kinds.map(\.type), .none, text: .plainUTF8))
                let arguments = kinds.enumerated().map { "CAST(($1)[\($0 + 1)] AS \($1.sql))" }
                try oracle.examine(function, kinds, "\(name)(\(arguments.joined(separator: ", ")))")
            }
        }
        print("\(oracle.counts)")
        #expect(oracle.counts["values", default: 0] > 5000)
    }
}
