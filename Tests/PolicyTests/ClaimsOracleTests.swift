import Postgres
import TestSupport
import Testing

@testable import Policy

/// Tests that policies read the same values from claims as PostgreSQL does, for every content of a token.
@Suite(.serialized, .within(minutes: 10)) struct ClaimsOracleTests {
    private static let texts = [
        "", " ", "{}", "null", "[]", "1", #""text""#, "{", #"{"sub": }"#, #"{"sub": null}"#, #"{"sub": ""}"#,
        #"{"sub": "8b2e8ba0-0000-4000-8000-000000000001"}"#, #"{"sub": "{8B2E8BA0-0000-4000-8000-000000000001}"}"#,
        #"{"sub": "8b2e8ba000004000-8000000000000001"}"#, #"{"sub": "nobody"}"#, #"{"sub": 7}"#, #"{"sub": 1.0}"#,
        #"{"sub": 1e2}"#, #"{"sub": -0}"#, #"{"sub": -0.00}"#, #"{"sub": true}"#, #"{"sub": " Yes "}"#,
        #"{"sub": "t"}"#, #"{"sub": "42"}"#, #"{"sub": " 42 "}"#, #"{"sub": "99999999999"}"#, #"{"sub": "0x10"}"#,
        #"{"sub": "1_000"}"#, #"{"sub": "1.50"}"#, #"{"sub": "NaN"}"#, #"{"sub": "1e3"}"#, #"{"sub": "o"}"#,
        #"{"sub": {"b": 1, "a": [1,2 , {"x":null}]}}"#, #"{"sub": [1, "2", null, {"a": "b"}]}"#,
        #"{"sub": "a", "sub": "b"}"#, #"{"sub": {"a": 1}, "sub": {"b": 2}}"#, #"{"\u0073ub": "escaped"}"#,
        #"{"sub": "\u00e9\ud83d\ude00\n\"\\/"}"#, #"{"sub": "\u0000"}"#, #"{"other": "\u0000", "sub": "x"}"#,
        #"{"sub": "\ud800"}"#, #"{"sub": "x", "n": 1e400}"#, #"{"sub": "x", "n": 1e999999}"#,
        #"{ "sub" : "spaces" , "a":{"b" :[1 ,2]} }"#, #"{"sub": "x"} trailing"#, #"{"sub": 'x'}"#,
        #"{"app": {"tenant": "8b2e8ba0-0000-4000-8000-000000000002", "admin": true, "level": 3}, "sub": "x"}"#,
        #"{"app": {"tenant": null}, "sub": "x"}"#, #"{"app": "text", "sub": "x"}"#, #"{"app": [{"tenant": "t"}]}"#,
        #"{"app": {"tenant": "日本", "admin": "false"}}"#, #"{"app": {"admin": false, "admin": 1, "level": 3.0}}"#,
        #"{"sub": 12345678901234567890}"#, #"{"sub": 0.1000}"#, #"{"sub":"x","":{"":1}}"#, "{\"sub\": \"tab\\tx\"}",
        #"{"sub":"<\u007f>\u001f\b\f"}"#, #"{"b": 1, "aa": 2, "a": {"z": 1, "y": [true, false]}, "sub": "order"}"#,
    ]

    @Test func `claims are read as PostgreSQL reads them`() throws {
        let oracle = try TermOracle(seed: 1)
        var answered = 0
        for (term, sql) in Self.readings {
            let answers = try oracle.answers(sql, Self.texts.map { [$0] })
            for (text, answer) in zip(Self.texts, answers) {
                var binding = Binding(claims: Array(text.utf8), role: [], answers: [:])
                let own = binding.bind(term)
                guard let said = Self.text(own) else { continue }
                answered += 1
                #expect(said == String(answer.prefix(said == "E" ? 1 : .max)), "\(sql) of \(text)")
            }
        }
        print("\(answered) of \(Self.readings.count * Self.texts.count) read in process")
        #expect(answered * 10 > Self.readings.count * Self.texts.count * 6)
    }

    private static func text(_ term: Term) -> String? {
        if term.isFailure { return "E" }
        guard case .constant(let text, _) = term else { return nil }
        return text.map { "V" + String(decoding: $0, as: UTF8.self) } ?? "N"
    }

    /// Terms with the same expressions in SQL, over the claims' text.
    private static let readings: [(Term, String)] = {
        var readings: [(Term, String)] = []
        for (type, sql) in [(TypeFacts.jsonb, "jsonb"), (Kind.json.type, "json")] {
            let json = Policies.cast(Policies.claims, to: type)
            let text = "CAST(NULLIF(($1)[1], '') AS \(sql))"
            readings.append((json, text))
            for name in ["sub", "app", "a", "", "nothing"] {
                readings.append((field(json, "->>", name), "(\(text) ->> '\(name)')"))
                readings.append((field(json, "->", name), "(\(text) -> '\(name)')"))
            }
            for (cast, name) in [
                (Policies.uuid, "uuid"), (.boolean, "boolean"), (.integer, "integer"),
                (Kind(Kind.of(20)).type, "bigint"), (.jsonb, "jsonb"),
            ] {
                readings.append(
                    (Policies.cast(field(json, "->>", "sub"), to: cast), "CAST((\(text) ->> 'sub') AS \(name))"))
            }
            for name in ["tenant", "admin", "level"] {
                let inner = field(field(json, "->", "app"), "->>", name)
                readings.append((inner, "((\(text) -> 'app') ->> '\(name)')"))
                readings.append(
                    (Policies.cast(inner, to: .boolean), "CAST(((\(text) -> 'app') ->> '\(name)') AS boolean)"))
                let path = apply("#>>", json, .constant(Array("{app,\(name)}".utf8), .textArray))
                readings.append((path, "(\(text) #>> '{app,\(name)}')"))
            }
            readings.append(
                (
                    apply("#>>", json, .constant(Array("{app,0,tenant}".utf8), .textArray)),
                    "(\(text) #>> '{app,0,tenant}')"
                ))
            readings.append(
                (
                    apply("->", field(json, "->", "sub"), .constant(Array("-1".utf8), .integer)),
                    "((\(text) -> 'sub') -> -1)"
                ))
        }
        let json = Policies.cast(Policies.claims, to: .jsonb)
        readings.append(
            (apply("?", json, .constant(Array("sub".utf8), .text)), "(CAST(NULLIF(($1)[1], '') AS jsonb) ? 'sub')"))
        readings.append(
            (
                apply("@>", json, .constant(Array(#"{"app": {"admin": true}}"#.utf8), .jsonb)),
                #"(CAST(NULLIF(($1)[1], '') AS jsonb) @> '{"app": {"admin": true}}')"#
            ))
        return readings
    }()

    private static func field(_ json: Term, _ symbol: String, _ name: String) -> Term {
        apply(symbol, json, .constant(Array(name.utf8), .text))
    }

    private static func apply(_ symbol: String, _ left: Term, _ right: Term) -> Term {
        guard let a = left.type, let b = right.type,
            let function = Function.infix(symbol, a, b, .deterministic(name: nil), text: .plainUTF8)
        else { return .undecided }
        return .apply(function, [left, right])
    }
}
