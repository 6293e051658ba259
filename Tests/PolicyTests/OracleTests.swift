import Postgres
import TestSupport
import Testing

@testable import Policy

/// Tests that a predicate's verdict on a row is always PostgreSQL's answer.
@Suite(.serialized, .within(minutes: 10)) struct OracleTests {
    @Test(arguments: seeds(2)) func `every verdict is PostgreSQL's`(seed: Seed) throws {
        let oracle = try Oracle(seed: seed)
        for subject in Subject.all { try oracle.examine(subject) }
        print("seed \(seed): \(oracle.cases) cases, \(oracle.asked) asked of PostgreSQL")
        #expect(oracle.cases > 5000)
        #expect(oracle.asked > 0 && oracle.asked * 2 < oracle.cases)
    }

    /// Checks another database encoding, with texts that this encoding can represent.
    @Test(arguments: ServerEncoding.others) func `every verdict is that of a database in another encoding`(
        encoding: ServerEncoding
    ) throws {
        let oracle = try Oracle(seed: 1, encoding)
        for subject in Subject.all where subject.isOfEveryEncoding { try oracle.examine(subject) }
        for _ in 0..<50 { try oracle.examineTree() }
        print("\(encoding): \(oracle.cases) cases, \(oracle.asked) asked of PostgreSQL")
        #expect(oracle.cases > 3000 && oracle.asked > 500)
    }

    @Test(arguments: seeds(2)) func `trees of conditions are PostgreSQL's too`(seed: Seed) throws {
        let oracle = try Oracle(seed: seed)
        for _ in 0..<150 { try oracle.examineTree() }
        #expect(oracle.cases > 1000)
    }

    @Test(arguments: seeds(2)) func `conditions on what a change has changed are PostgreSQL's too`(seed: Seed) throws {
        let oracle = try Oracle(seed: seed)
        for _ in 0..<250 { try oracle.examineEvents() }
        print("seed \(seed): \(oracle.cases) cases of changes")
        #expect(oracle.cases > 2000)
    }

    static let refusedTexts: [(UInt32, String, [String])] = [
        (21, "smallint", ["32768", "-32769", "", " ", "1.5", "a", "1 2", "--1", "+", "99999999999999999999x"]),
        (23, "integer", ["hey", "2147483648", "-2147483649", "", "1,2", "1e3", "\"", "0 x"]),
        (20, "bigint", ["9223372036854775808", "-9223372036854775809", "x"]),
        (16, "boolean", ["", "o", "tr ue", "2", "yess", "TRUEX"]),
        (
            2950, "uuid",
            [
                "", "a0eebc99", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11x",
                "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11", "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            ]
        ), (1700, "numeric", ["", ".", "1..2", "abc", "1e", "--1"]), (701, "double precision", ["x", "1e999"]),
        (1082, "date", ["2026-02-30", "hey"]), (90000, "public.mood", ["Sad", ""]),
        (1184, "timestamp with time zone", ["yesterdayish"]), (114, "json", ["{}", "{"]),
        (600, "point", ["(1,2)", "x"]),
        (1007, "integer[]", ["1", "{a}", "{1,2"]), (3802, "jsonb", ["{", "hey"]),
    ]

    @Test func `what is no value is refused in PostgreSQL's words`() throws {
        let oracle = try Oracle(seed: 1)
        for (oid, type, texts) in Self.refusedTexts {
            for text in texts { try oracle.examineRefusal(oid, type, text) }
        }
        #expect(oracle.cases > 40)
    }

    @Test func `operators a type does not have are refused when the subscription is made`() throws {
        let oracle = try Oracle(seed: 1)
        let refused: [(UInt32, String, FilterOperator, String)] = [
            (23, "integer", .cs, "1"), (25, "text", .sl, "a"), (603, "box", .adj, "(1,2),(3,4)"),
            (3802, "jsonb", .ov, "1"), (1082, "date", .cd, "2026-01-01"),
        ]
        for (oid, type, comparison, value) in refused {
            let refusal = try #require(try oracle.refusal(oid, type, comparison, value))
            #expect(refusal.sqlState == "42883", "\(refusal.message)")
            #expect(refusal.message.hasPrefix("operator does not exist: \(type) "))
        }
        let list = try #require(try oracle.refusal(1007, "integer[]", .in, "{1}"))
        #expect(list.sqlState == "42883")
    }

    @Test func `a bad regular expression is refused in the reference's words`() throws {
        let oracle = try Oracle(seed: 1)
        let refusal = try oracle.refusal(25, "text", .match, "(")
        #expect(
            refusal?.message
                == "invalid regular expression for match filter: invalid regular expression: parentheses () not balanced"
        )
        #expect(refusal?.sqlState == "P0001")
    }
}

/// Compares the verdicts of predicates with PostgreSQL's own answers.
final class Oracle {
    private let database: TestDatabase
    private var random: SeededRandom
    private(set) var cases = 0
    private(set) var asked = 0
    private let encoding: ServerEncoding
    private let subjects: [Subject]

    init(seed: Seed, _ encoding: ServerEncoding = .utf8) throws {
        database = try TestDatabase(on: nil, encoding)
        random = SeededRandom(seed: seed)
        self.encoding = encoding
        subjects = Subject.all.filter { encoding == .utf8 || $0.isOfEveryEncoding }
        if encoding == .utf8 {
            try database.run(
                """
                CREATE TYPE public.mood AS ENUM ('ok', 'happy', 'Ünruhig', 'a b');
                ALTER TYPE public.mood ADD VALUE 'sad' BEFORE 'ok';
                \(Subject.collationSQL)
                """)
        }
    }

    // MARK: One condition

    func examine(_ subject: Subject) throws {
        var subject = subject
        subject.values += (0..<12).compactMap { _ in Generated.value(subject.column.type, &random) }
        subject.values = subject.values.filter { takes($0, subject.sqlType) }
        let rows = try rows(of: subject)
        for comparison in subject.operators {
            for _ in 0..<4 {
                let condition = FilterCondition(
                    "c", comparison, constant(subject, comparison), isNegated: Bool.random(using: &random))
                try examine(condition, subject, rows)
            }
        }
        for word in ["null", "unknown", "true", "false"] where word == "null" || subject.column.type.oid == 16 {
            try examine(FilterCondition("c", .is, word, isNegated: Bool.random(using: &random)), subject, rows)
        }
    }

    /// Returns the subject's values in the form in which changes store them.
    private func rows(of subject: Subject) throws -> [String?] {
        var texts: [String?] = [nil]
        for value in subject.values {
            texts.append(try database.connection.query("SELECT CAST($1 AS \(subject.sqlType))", [value]).first?[0])
        }
        return texts
    }

    /// True if the database accepts the text as a value of the type. Its encoding may lack some characters.
    private func takes(_ text: String, _ type: String = "text") -> Bool {
        encoding == .utf8
            || (try? database.connection.query("SELECT $1::text, CAST($1::text AS \(type))", [text])) != nil
    }

    /// Returns a constant that the database's encoding can represent.
    private func constant(_ subject: Subject, _ comparison: FilterOperator) -> String {
        while true {
            let value = anyConstant(subject, comparison)
            if comparison == .in ? takes(value, subject.sqlType + "[]") : takes(value) { return value }
        }
    }

    private func anyConstant(_ subject: Subject, _ comparison: FilterOperator) -> String {
        switch comparison {
        case .in:
            if subject.column.type.oid == 23, random.pick([true, false]) { return "{{1,42},{-1,NULL}}" }
            let count = Int.random(in: 0...5, using: &random)
            return "{" + (0..<count).map { _ in element(subject) }.joined(separator: ",") + "}"
        case .like, .ilike:
            return subject.column.type.oid == 17
                ? random.pick(subject.values)
                : random.pick([
                    "%", "_", "a%", "%b", "%A%", "a_b", "__", "_%_", "a\\%b", "%\\\\%", "日_", "Б_", "%ä%", "", "k", "I",
                    "TI%E", "ß", "%%b", "a ",
                ])
        case .match, .imatch: return random.pick(["^a", "b$", "A", ".", "", "日.", "a|b", "[[:alpha:]]"])
        default: return random.pick(subject.values)
        }
    }

    private func element(_ subject: Subject) -> String {
        if Int.random(in: 0..<8, using: &random) == 0 { return "NULL" }
        let value = random.pick(subject.values)
        let escaped = value.map { $0 == "\"" || $0 == "\\" ? "\\\($0)" : String($0) }.joined()
        return "\"\(escaped)\""
    }

    private func examine(_ condition: FilterCondition, _ subject: Subject, _ rows: [String?]) throws {
        let predicate = try predicate(.condition(condition), [subject.column])
        let expression = Self.sql(condition, subject, row: "CAST(t AS \(subject.sqlType))\(subject.sqlCollation)", "$2")
        let values = condition.comparison == .is ? [] : [condition.value]
        let answers = try answers(expression, rows, values)
        for (row, answer) in zip(rows, answers) {
            let value = row.map { TestValue.text($0) } ?? .null
            try check(predicate, [value], answer, "\(subject.column.type.name)\(subject.sqlCollation) \(condition)") {
                !subject.neverAsks.contains(condition.comparison) && condition.comparison != .is
            }
        }
    }

    private func answers(_ expression: String, _ rows: [String?], _ values: [String]) throws -> [String?] {
        let texts = rows.map { text in
            text.map { "\"" + $0.map { $0 == "\"" || $0 == "\\" ? "\\\($0)" : String($0) }.joined() + "\"" } ?? "NULL"
        }
        let sql = "SELECT \(expression) FROM unnest($1::text[]) WITH ORDINALITY AS r(t, n) ORDER BY n"
        return try database.connection.query(sql, ["{" + texts.joined(separator: ",") + "}"] + values).values.map(\.[0])
    }

    /// Returns the filter in SQL. It follows the protocol's table of operators, and does not use the SQL of the Policy
    /// module.
    static func sql(_ condition: FilterCondition, _ subject: Subject, row: String, _ value: String) -> String {
        let not = condition.isNegated ? "NOT " : ""
        let type = subject.sqlType
        switch condition.comparison {
        case .is: return "\(row) IS \(not)\(condition.value)"
        case .in: return "\(not)(\(row) = ANY (\(value)::\(type)[]))"
        case .isdistinct: return "\(row) IS \(condition.isNegated ? "NOT " : "")DISTINCT FROM \(value)::\(type)"
        case .like, .ilike, .match, .imatch:
            let symbols: [FilterOperator: String] = [.like: "LIKE", .ilike: "ILIKE", .match: "~", .imatch: "~*"]
            let pattern = subject.column.type.oid == 17 ? "bytea" : "text"
            return "\(not)(\(row) \(symbols[condition.comparison] ?? "") \(value)::\(pattern))"
        default:
            let symbols: [FilterOperator: String] = [
                .eq: "=", .neq: "!=", .lt: "<", .lte: "<=", .gt: ">", .gte: ">=", .cs: "@>", .cd: "<@", .ov: "&&",
                .sl: "<<", .sr: ">>", .nxr: "&<", .nxl: "&>", .adj: "-|-",
            ]
            return "\(not)(\(row) \(symbols[condition.comparison] ?? "") \(value)::\(type))"
        }
    }

    private func check(
        _ predicate: Predicate, _ values: [TestValue], _ answer: String?, _ what: String, mayAsk: () -> Bool
    ) throws {
        cases += 1
        let expected = Self.verdict(answer)
        let verdict = predicate.verdict(values)
        if verdict == .ask {
            asked += 1
            #expect(encoding != .utf8 || mayAsk(), "must not ask: \(what) on \(values)")
            let question = try #require(predicate.question, "\(what)")
            let answered = Self.verdict(try ask(question, values))
            #expect(answered == expected, "asked: \(what) on \(values): \(question.sql)")
        } else if verdict == .notYes {
            #expect(expected != .yes, "\(what) on \(values)")
        } else {
            #expect(verdict == expected, "\(what) on \(values)")
        }
        if expected == .yes { #expect(predicate.isReached(by: values), "not reached: \(what) on \(values)") }
        if predicate.isDecidedByAccess, predicate.isReached(by: values) {
            #expect(expected == .yes, "its keys alone: \(what) on \(values)")
        }
    }

    private static func verdict(_ answer: String?) -> Verdict {
        answer.map { $0 == "t" ? .yes : .no } ?? .unknown
    }

    private func ask(_ question: Question, _ values: [TestValue]) throws -> String? {
        let texts = question.slots.map { slot -> String? in
            if case .text(let text) = values[slot] { return text }
            return nil
        }
        return try database.connection.query("SELECT " + question.sql, texts + question.constants).first?[0]
    }

    private func predicate(_ filter: Filter, _ columns: [ColumnFacts]) throws -> Predicate {
        var settings = FilterCheck.Settings.forTests
        settings.text = TextRules(TextRules.Encoding(server: encoding.rawValue), foldsASCIIPlainly: true)
        let check = try FilterCheck(filter, columns: columns, settings: settings)
        var canonical: [String] = []
        for literal in check.literals {
            let rows = try database.connection.query(literal.sql, [literal.text])
            canonical.append(try #require(rows.first?[0]))
        }
        return try Predicate(check, canonical: canonical)
    }

    // MARK: Trees

    private func columns(_ count: Int) -> [Subject] {
        (0..<count).map { index in
            var subject = random.pick(self.subjects)
            subject.values = subject.values.filter { takes($0, subject.sqlType) }
            subject.column.name = "c\(index)"
            return subject
        }
    }

    // MARK: Changes

    /// Checks a random tree of conditions on the row after a change, the row before it, and changed columns.
    func examineEvents() throws {
        let subjects = columns(3)
        let tree = Filter.any([events(subjects, depth: 2), .not(events(subjects, depth: 2))])
        let settings = FilterCheck.Settings.forTests
        let check = try FilterCheck(tree, columns: subjects.map(\.column), settings: settings)
        // The hub refuses such filters with conditions that only PostgreSQL can decide.
        guard let predicate = try? predicate(tree, subjects.map(\.column)) else {
            #expect(!check.oldSlots.isEmpty)
            return
        }
        guard predicate.readsOldRow else { return }
        let candidates = try subjects.map { try rows(of: $0) }
        for _ in 0..<8 {
            let old = candidates.map { random.pick($0) }
            // Most columns keep their value.
            let new = zip(candidates, old).map { Int.random(in: 0..<3, using: &random) == 0 ? random.pick($0) : $1 }
            for oldRow in [RowImage.OldRow.none, .known, .deleted] {
                var values: [String] = []
                let expression = sql(tree, subjects, oldRow, &values)
                let before = oldRow == .deleted ? new : old
                let answer = try database.connection.query(
                    "SELECT \(expression), $1::text, $2::text, $3::text, $4::text, $5::text, $6::text",
                    new + before + values
                ).first?[0]
                let rows = (new + before).map { $0.map { TestValue.text($0) } ?? .null }
                let verdict = predicate.verdict(Array(rows.prefix(3)), before: Array(rows.suffix(3)), oldRow)
                cases += 1
                #expect(
                    verdict != .ask && (verdict == .yes) == (answer == "t"), "\(tree) \(oldRow) \(rows): \(verdict)")
                let reached = oldRow == .none ? rows.prefix(3) + [.absent, .absent, .absent] : rows[...]
                #expect(verdict != .yes || predicate.isReached(by: Array(reached)), "\(tree) \(oldRow) \(rows)")
            }
        }
    }

    private func events(_ subjects: [Subject], depth: Int) -> Filter {
        let parts = (0..<Int.random(in: 1...3, using: &random)).map { _ in depth - 1 }
        switch depth == 0 ? 9 : Int.random(in: 0..<10, using: &random) {
        case 0: return .all(parts.map { events(subjects, depth: $0) })
        case 1: return .any(parts.map { events(subjects, depth: $0) })
        case 2: return .not(events(subjects, depth: depth - 1))
        case 3, 4, 5:
            let names = (0..<Int.random(in: 1...2, using: &random)).map { _ in random.pick(subjects).column.name }
            let value = names.count == 1 ? names[0] : "{\(names.joined(separator: ","))}"
            return .condition(
                FilterCondition(
                    "changed", .in, value, isNegated: Bool.random(using: &random), isBare: names.count == 1))
        default:
            let subject = random.pick(subjects)
            let comparison = random.pick(subject.operators)
            let prefix = Int.random(in: 0..<3, using: &random) > 0 ? "old." : ""
            return .condition(
                FilterCondition(
                    prefix + subject.column.name, comparison, constant(subject, comparison),
                    isNegated: Bool.random(using: &random)))
        }
    }

    /// Returns the tree in SQL, over the new row's texts in parameters 1 to 3 and the old row's in 4 to 6.
    private func sql(
        _ tree: Filter, _ subjects: [Subject], _ oldRow: RowImage.OldRow, _ values: inout [String]
    ) -> String {
        func joined(_ parts: [Filter], _ word: String) -> String {
            "(" + parts.map { sql($0, subjects, oldRow, &values) }.joined(separator: word) + ")"
        }
        switch tree {
        case .all(let parts): return joined(parts, " AND ")
        case .any(let parts): return joined(parts, " OR ")
        case .not(let part): return "(NOT \(sql(part, subjects, oldRow, &values)))"
        case .condition(let condition):
            func slot(_ name: some StringProtocol) -> Int { Int(String(name.suffix(1))) ?? 0 }
            if condition.column == "changed" {
                let names = condition.value.split(whereSeparator: { "{},".contains($0) })
                let any = names.map { Self.changed(slot($0), subjects[slot($0)], oldRow) }.joined(separator: " OR ")
                return condition.isNegated ? "(NOT (\(any)))" : "(\(any))"
            }
            let slot = slot(condition.column)
            let isOld = condition.column.hasPrefix("old.")
            if isOld, oldRow == .none { return "CAST(NULL AS boolean)" }
            values.append(condition.value)
            let row =
                "CAST($\(slot + (isOld ? 4 : 1))::text AS \(subjects[slot].sqlType))\(subjects[slot].sqlCollation)"
            return "(" + Self.sql(condition, subjects[slot], row: row, "$\(6 + values.count)") + ")"
        }
    }

    private static func changed(_ slot: Int, _ subject: Subject, _ oldRow: RowImage.OldRow) -> String {
        guard oldRow == .known else { return "true" }
        let (new, old) = ("$\(slot + 1)::text", "$\(slot + 4)::text")
        // For types that the hub cannot compare, another text is a change.
        if Comparator(subject.column).kind == .opaque { return "(\(new) IS DISTINCT FROM \(old))" }
        let type = subject.sqlType
        return "(CAST(\(new) AS \(type))\(subject.sqlCollation) IS DISTINCT FROM CAST(\(old) AS \(type)))"
    }

    /// Checks random trees of conditions over three columns of different types.
    func examineTree() throws {
        let subjects = columns(3)
        let tree = tree(subjects, depth: 3)
        let predicate = try predicate(tree, subjects.map(\.column))
        var values: [String] = []
        let expression = sql(tree, subjects, &values)
        let candidates = try subjects.map { try rows(of: $0) }
        for _ in 0..<20 {
            let row = candidates.map { random.pick($0) }
            let answer = try database.connection.query(
                "SELECT \(expression), $1::text, $2::text, $3::text", row + values
            ).first?[0]
            try check(predicate, row.map { $0.map { .text($0) } ?? .null }, answer, "\(tree)") { true }
        }
    }

    private func tree(_ subjects: [Subject], depth: Int) -> Filter {
        let kind = depth == 0 ? 0 : Int.random(in: 0..<5, using: &random)
        let parts = (0..<Int.random(in: 1...3, using: &random)).map { _ in depth - 1 }
        switch kind {
        case 1: return .all(parts.map { tree(subjects, depth: $0) })
        case 2, 3: return .any(parts.map { tree(subjects, depth: $0) })
        case 4: return .not(tree(subjects, depth: depth - 1))
        default:
            let subject = random.pick(subjects)
            let comparison = random.pick(subject.operators)
            return .condition(
                FilterCondition(
                    subject.column.name, comparison, constant(subject, comparison),
                    isNegated: Bool.random(using: &random)))
        }
    }

    private func sql(_ tree: Filter, _ subjects: [Subject], _ values: inout [String]) -> String {
        switch tree {
        case .all(let parts): return "(" + parts.map { sql($0, subjects, &values) }.joined(separator: " AND ") + ")"
        case .any(let parts): return "(" + parts.map { sql($0, subjects, &values) }.joined(separator: " OR ") + ")"
        case .not(let part): return "(NOT \(sql(part, subjects, &values)))"
        case .condition(let condition):
            let slot = Int(String(condition.column.dropFirst())) ?? 0
            let subject = subjects[slot]
            values.append(condition.value)
            let row = "CAST($\(slot + 1)::text AS \(subject.sqlType))\(subject.sqlCollation)"
            return "(" + Self.sql(condition, subject, row: row, "$\(subjects.count + values.count)") + ")"
        }
    }

    // MARK: Refusals

    func examineRefusal(_ oid: UInt32, _ type: String, _ text: String) throws {
        cases += 1
        let given = try refusal(oid, type, .eq, text)
        let own = Self.error {
            try self.database.connection.query("SELECT x = x FROM CAST($1 AS \(type)) AS x", [text])
        }
        #expect(given?.message == own?.message && given?.sqlState == own?.sqlState, "\(type) '\(text)'")
        #expect(given != nil || own == nil)
    }

    func refusal(
        _ oid: UInt32, _ type: String, _ comparison: FilterOperator, _ text: String
    ) throws -> FilterRefusal? {
        let facts = TypeFacts(oid: oid, name: type, shape: Self.shape(oid))
        let collation = oid == 25 ? Collation.bytewise : .none
        let check: FilterCheck
        do throws(FilterRefusal) {
            check = try FilterCheck(
                .condition(FilterCondition("c", comparison, text)),
                columns: [ColumnFacts(name: "c", type: facts, collation: collation)],
                settings: .forTests)
        } catch {
            return error
        }
        for literal in check.literals {
            if let error = Self.error({ try self.database.connection.query(literal.sql, [literal.text]) }) {
                return literal.refusal(sqlState: error.sqlState ?? "", condition: "", message: error.message)
            }
        }
        return nil
    }

    private static func shape(_ oid: UInt32) -> TypeFacts.Shape {
        switch oid {
        case 90000: .enumeration(labels: ["sad"])
        case 1007: .array(of: TypeFacts(oid: 23, name: "integer"))
        default: .base
        }
    }

    private static func error(_ body: () throws -> Rows) -> PostgresError? {
        do {
            _ = try body()
            return nil
        } catch {
            return error as? PostgresError
        }
    }
}
