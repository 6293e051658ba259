import Bytes
import Postgres
import TestSupport
import Testing

@testable import Policy

/// Type for terms and for SQL, with values to test.
struct Kind: Sendable {
    var type: TypeFacts
    var collation: Collation
    var sql: String
    var collate: String
    var values: [String]

    init(_ subject: Subject, _ more: [String] = []) {
        type = subject.column.type
        collation = subject.column.collation
        sql = subject.sqlType
        collate = subject.sqlCollation
        values = subject.values + more
    }

    static let all: [Kind] = Subject.all.map { Kind($0) } + [json]

    static let json: Kind = {
        var kind = Kind(of(3802))
        kind.type = TypeFacts(oid: 114, name: "json")
        kind.sql = "json"
        kind.values += [
            #" {"a" : 1, "a":"2"} "#, #"{"a": "\u00e4\ud83d\ude00"}"#, #"{"a":1e2}"#, #"[1 , {"a": [ ] }]"#,
            #"{"a":"\u0000"}"#,
        ]
        return kind
    }()

    static func of(_ oid: UInt32) -> Subject {
        // The first subject of a type has the collation of claims.
        let found = Subject.all.filter { $0.column.type.oid == oid }
        return found.first { $0.column.collation == .deterministic(name: nil) } ?? found[0]
    }
}

/// Source of expected results: it evaluates expressions in PostgreSQL, including their errors.
final class TermOracle {
    let database: TestDatabase
    var random: SeededRandom
    private(set) var counts: [String: Int] = [:]
    private var canonical: [String: [String]] = [:]
    let text: TextRules
    private let encoding: ServerEncoding

    init(seed: Seed, _ encoding: ServerEncoding = .utf8) throws {
        database = try TestDatabase(on: nil, encoding)
        random = SeededRandom(seed: seed)
        self.encoding = encoding
        text = TextRules(TextRules.Encoding(server: encoding.rawValue), foldsASCIIPlainly: true)
        if encoding == .utf8 {
            try database.run(
                """
                CREATE TYPE public.mood AS ENUM ('ok', 'happy', 'Ünruhig', 'a b');
                ALTER TYPE public.mood ADD VALUE 'sad' BEFORE 'ok';
                \(Subject.collationSQL)
                """)
        }
        try database.run(
            """
            CREATE FUNCTION public.attempt(expression text, arguments text[]) RETURNS text LANGUAGE plpgsql AS $$
            DECLARE answer text;
            BEGIN
                EXECUTE 'SELECT CASE WHEN (x) IS NULL THEN ''N'' ELSE ''V'' || format(''%s'', x) END FROM (SELECT '
                    || replace(expression, '($1)[', '(r.a)[')
                    || ' AS x FROM (SELECT $1 AS a OFFSET 0) r OFFSET 0) s' INTO answer USING arguments;
                RETURN answer;
            EXCEPTION WHEN OTHERS THEN RETURN 'E' || SQLSTATE || ' ' || SQLERRM;
            END $$;
            SET TimeZone = 'UTC';
            """)
    }

    func count(_ what: String) { counts[what, default: 0] += 1 }

    /// Returns PostgreSQL's answer for each list of arguments.
    func answers(_ expression: String, _ rows: [[String?]]) throws -> [String] {
        let lists = rows.map { Self.array($0) }
        let sql =
            "SELECT public.attempt($1, a::text[]) FROM unnest($2::text[]) WITH ORDINALITY AS r(a, n) ORDER BY n"
        return try database.connection.query(sql, [expression, Self.array(lists)]).values.map { $0[0] ?? "" }
    }

    static func array(_ texts: [String?]) -> String {
        let elements = texts.map { text in
            text.map { "\"" + $0.map { $0 == "\"" || $0 == "\\" ? "\\\($0)" : String($0) }.joined() + "\"" } ?? "NULL"
        }
        return "{" + elements.joined(separator: ",") + "}"
    }

    /// Returns values in the form in which rows store them.
    func values(_ kind: Kind) throws -> [String] {
        if let known = canonical[kind.sql + kind.collate] { return known }
        let more = (0..<6).compactMap { _ in Generated.value(kind.type, &random) }
        let taken = (kind.values + more).filter { encoding == .utf8 || database.has($0) }
        let answers = try answers("CAST(($1)[1] AS \(kind.sql))", taken.map { [$0] })
        let values = answers.filter { $0.hasPrefix("V") }.map { String($0.dropFirst()) }
        canonical[kind.sql + kind.collate] = values
        return values
    }

    static func text(_ outcome: Outcome) -> String {
        switch outcome {
        case .value(let bytes): "V" + String(decoding: bytes, as: UTF8.self)
        case .null: "N"
        case .failed: "E"
        case .cannot: "?"
        }
    }

    /// Compares a function's results with PostgreSQL's results, for some values.
    func examine(_ function: Function, _ kinds: [Kind], _ expression: String, limit: Int = 60) throws {
        let candidates = try kinds.map { try values($0) }
        guard candidates.allSatisfy({ !$0.isEmpty }) else { return }
        var rows: [[String?]] = []
        for _ in 0..<limit {
            rows.append(
                candidates.map { Int.random(in: 0..<20, using: &random) == 0 ? nil : random.pick($0) })
        }
        // Random values are rarely equal.
        for value in candidates[0].prefix(30) where kinds.count == 2 && candidates[1].contains(value) {
            rows.append([value, value])
        }
        for (row, answer) in zip(rows, try answers(expression, rows)) {
            check(function, row, answer, expression)
        }
    }

    private func check(_ function: Function, _ row: [String?], _ answer: String, _ expression: String) {
        count("values")
        let bytes = row.map { $0.map { Array($0.utf8) } }
        let own = Self.text(function.apply(bytes, moment: nil, maximumWork: 1 << 20))
        if own == "?" {
            count("asked")
            return
        }
        let same = answer.hasPrefix("E") ? own == "E" : Self.isSame(own, answer, function)
        #expect(same, "\(expression) of \(row): PostgreSQL says \(answer), we say \(own)")
    }

    /// True if both results are equal. Numerics are compared as numbers, because the fraction may end in other zeros.
    private static func isSame(_ own: String, _ answer: String, _ function: Function) -> Bool {
        guard function.result.oid == TypeOID.numeric, own.hasPrefix("V"), answer.hasPrefix("V") else {
            return own == answer
        }
        let (a, b) = (Array(own.utf8.dropFirst()), Array(answer.utf8.dropFirst()))
        return Comparator(.numeric).equal(a.span.bytes, b.span.bytes) == true
    }
}
