import Bytes
import Postgres
import TestSupport
import Testing

@testable import Policy

/// Tests that whole terms, and the predicates made from them, give PostgreSQL's results for rows.
@Suite(.serialized, .inChain(minutes: 10)) struct TermOracleTests {
    @Test(arguments: seeds(3)) func `terms are PostgreSQL's expressions`(seed: Seed) throws {
        var trees = try TermTrees(seed: seed)
        for _ in 0..<700 { try trees.examine() }
        print("seed \(seed): \(trees.oracle.counts)")
        #expect(trees.oracle.counts["yes", default: 0] > 1000)
        #expect(trees.oracle.counts["asked", default: 0] * 3 < trees.oracle.counts["verdicts", default: 0])
    }

    @Test(arguments: ServerEncoding.others) func `terms are the expressions of a database in another encoding`(
        encoding: ServerEncoding
    ) throws {
        var trees = try TermTrees(seed: 1, encoding)
        for _ in 0..<300 { try trees.examine() }
        print("\(encoding): \(trees.oracle.counts)")
        #expect(trees.oracle.counts["yes", default: 0] > 300)
    }
}

/// Term with the same expression in SQL.
struct Written {
    var term: Term
    var sql: String
    var type: TypeFacts
    var collation: Collation
}

/// Generator of random terms over columns of many types.
struct TermTrees {
    let oracle: TermOracle
    private let kinds: [Kind]
    private let words: Kind
    private var random: SeededRandom

    init(seed: Seed, _ encoding: ServerEncoding = .utf8) throws {
        oracle = try TermOracle(seed: seed, encoding)
        random = SeededRandom(seed: seed.number &+ 77)
        var words = Kind(Kind.of(25))
        words.values += ["1", "42", "a/b", "A/b", "t", "true", "8b2e8ba0-0000-4000-8000-000000000001", "{a,b}"]
        var uuid = Kind(Kind.of(2950))
        uuid.values += ["8b2e8ba0-0000-4000-8000-000000000001"]
        var integer = Kind(Kind.of(23))
        integer.values = ["0", "1", "2", "-1", "42", "2147483647"]
        self.words = words
        let others: [UInt32] = [
            16, 21, 20, 1700, 701, 90000, 1082, 1114, 1184, 3802, 1007, 1009, 1042, 1043, 2951, 1186,
        ]
        let subjects = others.map { Kind.of($0) }.filter { encoding == .utf8 || $0.isOfEveryEncoding }
        kinds = [words, uuid, integer] + subjects.map { Kind($0) }
    }

    // MARK: Trees

    mutating func truth(_ depth: Int) -> Written {
        guard depth > 0 else { return condition(0) }
        switch Int.random(in: 0..<12, using: &random) {
        case 0, 1: return group(depth, " AND ") { .all($0) }
        case 2, 3: return group(depth, " OR ") { .any($0) }
        case 4:
            let part = truth(depth - 1)
            return boolean(.not(part.term), "(NOT \(part.sql))")
        case 5:
            let part = truth(depth - 1)
            return random.pick([
                boolean(.isTrue(part.term), "(\(part.sql) IS TRUE)"),
                boolean(.isFalse(part.term), "(\(part.sql) IS FALSE)"),
                boolean(.isNull(part.term), "(\(part.sql) IS UNKNOWN)"),
            ])
        case 6:
            let parts = (truth(depth - 1), truth(depth - 1), truth(depth - 1))
            return boolean(
                .choice([Term.Branch(when: parts.0.term, then: parts.1.term)], otherwise: parts.2.term),
                "(CASE WHEN \(parts.0.sql) THEN \(parts.1.sql) ELSE \(parts.2.sql) END)")
        case 7:
            let parts = (truth(depth - 1), truth(depth - 1))
            return boolean(.coalesce([parts.0.term, parts.1.term]), "COALESCE(\(parts.0.sql), \(parts.1.sql))")
        default: return condition(depth - 1)
        }
    }

    private func boolean(_ term: Term, _ sql: String) -> Written {
        Written(term: term, sql: sql, type: .boolean, collation: .none)
    }

    private mutating func group(_ depth: Int, _ word: String, _ make: ([Term]) -> Term) -> Written {
        let parts = (0..<Int.random(in: 2...3, using: &random)).map { _ in truth(depth - 1) }
        return boolean(make(parts.map(\.term)), "(" + parts.map(\.sql).joined(separator: word) + ")")
    }

    private mutating func condition(_ depth: Int) -> Written {
        let kind = random.pick(kinds)
        let left = value(kind, depth)
        switch Int.random(in: 0..<10, using: &random) {
        case 0: return boolean(.isNull(left.term), "(\(left.sql) IS NULL)")
        case 1, 2: return membership(left, kind, depth)
        case 3:
            let right = value(kind, depth)
            guard let function = equal(left) else { return boolean(.isNull(left.term), "(\(left.sql) IS NULL)") }
            return boolean(.isDistinct(function, left.term, right.term), "(\(left.sql) IS DISTINCT FROM \(right.sql))")
        default: return compared(left, kind, depth)
        }
    }

    private func equal(_ left: Written) -> Function? {
        Function.infix("=", left.type, left.type, left.collation, text: oracle.text)
    }

    private mutating func compared(_ left: Written, _ kind: Kind, _ depth: Int) -> Written {
        for _ in 0..<20 {
            let symbol = random.pick([
                "=", "=", "=", "<>", "<", "<=", ">", ">=", "@>", "<@", "&&", "?", "~~", "!~~", "~~*",
            ])
            let right = value(random.pick([kind, kind, kind, random.pick(kinds), words]), depth)
            let collation = left.collation == .none ? right.collation : left.collation
            if let function = Function.infix(
                symbol, left.type, right.type, collation, text: oracle.text, timeZone: "UTC"),
                function.result.oid == TypeOID.bool
            {
                return boolean(.apply(function, [left.term, right.term]), "(\(left.sql) \(symbol) \(right.sql))")
            }
        }
        return boolean(.isNull(left.term), "(\(left.sql) IS NULL)")
    }

    private mutating func membership(_ left: Written, _ kind: Kind, _ depth: Int) -> Written {
        guard kind.type.element == nil, let function = equal(left) else {
            return boolean(.isNull(left.term), "(\(left.sql) IS NULL)")
        }
        let isAny = Bool.random(using: &random)
        let arrays = kinds.filter { $0.type.element.map { $0.oid == kind.type.oid } ?? false }
        if let array = arrays.first, Bool.random(using: &random) {
            let list = value(array, depth)
            return boolean(.anyElement(function, left.term, array: list.term), "(\(left.sql) = ANY (\(list.sql)))")
        }
        let operation =
            isAny
            ? function
            : Function.infix("<>", left.type, left.type, left.collation, text: oracle.text) ?? function
        let type = TypeFacts(oid: 0, name: kind.type.name + "[]", shape: .array(of: kind.type))
        let elements = (0..<Int.random(in: 0...4, using: &random)).map { _ -> String? in
            Int.random(in: 0..<6, using: &random) == 0 ? nil : constant(kind)
        }
        let literal = TermOracle.array(elements)
        let list = Term.constant(ArrayText.text(elements.map { $0.map { Array($0.utf8) } }), type)
        let sql = "CAST(\(Self.quoted(literal)) AS \(kind.sql)[])"
        return isAny
            ? boolean(.anyElement(operation, left.term, array: list), "(\(left.sql) = ANY (\(sql)))")
            : boolean(.allElements(operation, left.term, array: list), "(\(left.sql) <> ALL (\(sql)))")
    }

    // MARK: Values

    private mutating func constant(_ kind: Kind) -> String {
        (try? oracle.values(kind)).map { random.pick($0) } ?? ""
    }

    private static func quoted(_ text: String) -> String {
        "'" + text.map { $0 == "'" ? "''" : String($0) }.joined() + "'"
    }

    private mutating func value(_ kind: Kind, _ depth: Int) -> Written {
        if depth > 0, let made = made(kind, depth) { return made }
        if Int.random(in: 0..<3, using: &random) == 0 {
            let isNull = Int.random(in: 0..<10, using: &random) == 0
            let text = constant(kind)
            return Written(
                term: .constant(isNull ? nil : Array(text.utf8), kind.type),
                sql: "CAST(\(isNull ? "NULL" : Self.quoted(text)) AS \(kind.sql))", type: kind.type,
                collation: kind.collation)
        }
        let slot = kinds.firstIndex { $0.sql == kind.sql } ?? 0
        return Written(
            term: .column(slot, kind.type), sql: "CAST(($1)[\(slot + 1)] AS \(kind.sql))", type: kind.type,
            collation: kind.collation)
    }

    private mutating func made(_ kind: Kind, _ depth: Int) -> Written? {
        switch Int.random(in: 0..<6, using: &random) {
        case 0:
            let parts = [value(kind, depth - 1), value(kind, depth - 1)]
            return written(.coalesce(parts.map(\.term)), "COALESCE(\(parts[0].sql), \(parts[1].sql))", kind)
        case 1:
            let (left, right) = (value(kind, depth - 1), value(kind, depth - 1))
            guard let function = equal(left) else { return nil }
            return written(.nullIf(function, left.term, right.term), "NULLIF(\(left.sql), \(right.sql))", kind)
        case 2:
            let (when, then, otherwise) = (truth(depth - 1), value(kind, depth - 1), value(kind, depth - 1))
            return written(
                .choice([Term.Branch(when: when.term, then: then.term)], otherwise: otherwise.term),
                "(CASE WHEN \(when.sql) THEN \(then.sql) ELSE \(otherwise.sql) END)", kind)
        case 3:
            let from = value(random.pick(kinds), depth - 1)
            guard let cast = Function.cast(from.type, to: kind.type, text: oracle.text.encoding, timeZone: "UTC") else {
                return nil
            }
            return written(.apply(cast, [from.term]), "CAST(\(from.sql) AS \(kind.sql))", kind)
        default: return applied(kind, depth)
        }
    }

    private func written(_ term: Term, _ sql: String, _ kind: Kind) -> Written {
        Written(term: term, sql: sql, type: kind.type, collation: kind.collation)
    }

    private mutating func applied(_ kind: Kind, _ depth: Int) -> Written? {
        switch kind.type.oid {
        case TypeOID.text: return text(kind, depth)
        case TypeOID.int4:
            let (left, right) = (value(kind, depth - 1), value(kind, depth - 1))
            let symbol = random.pick(["+", "-", "*", "/", "%"])
            return infix(symbol, left, right, kind)
        case TypeOID.jsonb:
            return infix("->", value(kind, depth - 1), value(words, 0), kind)
        case TypeOID.textArray:
            let (left, right) = (value(words, depth - 1), value(words, 0))
            if Bool.random(using: &random) {
                return written(.array([left.term, right.term], kind.type), "ARRAY[\(left.sql), \(right.sql)]", kind)
            }
            return call("string_to_array", [left, right], kind)
        default: return nil
        }
    }

    private mutating func text(_ kind: Kind, _ depth: Int) -> Written? {
        let parts = [value(kind, depth - 1), value(kind, 0), value(kind, 0)]
        switch Int.random(in: 0..<9, using: &random) {
        case 0: return call(random.pick(["lower", "upper", "btrim", "ltrim"]), [parts[0]], kind)
        case 1: return call("replace", parts, kind)
        case 2: return infix("||", parts[0], parts[1], kind)
        case 3, 4:
            let array = value(kinds.first { $0.type.oid == TypeOID.textArray } ?? kind, depth - 1)
            let index = String(Int.random(in: -1...3, using: &random))
            return written(
                .element(array.term, index: .constant(Array(index.utf8), .integer)), "(\(array.sql))[\(index)]", kind)
        default:
            let json = value(kinds.first { $0.type.oid == TypeOID.jsonb } ?? kind, depth - 1)
            let name = random.pick(["a", "b", "c", ""])
            let key = Written(
                term: .constant(Array(name.utf8), .text), sql: "CAST('\(name)' AS text)", type: .text,
                collation: kind.collation)
            return infix("->>", json, key, kind)
        }
    }

    private func infix(_ symbol: String, _ left: Written, _ right: Written, _ kind: Kind) -> Written? {
        Function.infix(symbol, left.type, right.type, words.collation, text: oracle.text).map {
            written(.apply($0, [left.term, right.term]), "(\(left.sql) \(symbol) \(right.sql))", kind)
        }
    }

    private func call(_ name: String, _ arguments: [Written], _ kind: Kind) -> Written? {
        Function.named(name, arguments.map(\.type), words.collation, text: oracle.text).map {
            written(
                .apply($0, arguments.map(\.term)), "\(name)(\(arguments.map(\.sql).joined(separator: ", ")))", kind)
        }
    }

    // MARK: Holding them against PostgreSQL

    mutating func examine() throws {
        let written = truth(Int.random(in: 0...4, using: &random))
        guard written.sql.utf8.count < 20_000 else { return }
        var rows: [[String?]] = []
        for _ in 0..<16 {
            var row: [String?] = []
            for kind in kinds {
                row.append(Int.random(in: 0..<8, using: &random) == 0 ? nil : constant(kind))
            }
            rows.append(row)
        }
        let answers = try oracle.answers(written.sql, rows)
        let outcome = RowPolicy(written.term).residual(claims: [], role: [], answers: [:])
        guard case .residual(let residual) = outcome else {
            Issue.record("nothing is to be asked")
            return
        }
        let predicate = residual.predicate(keys: [], asker: 1, settings: .forTests)
        for (row, answer) in zip(rows, answers) {
            let values = row.map { $0.map { TestValue.text($0) } ?? .null }
            check(predicate, values, answer, written)
            checkReach(predicate, values, answer, written)
        }
    }

    /// True if PostgreSQL's answer is an error that another order of evaluation might avoid.
    private func isOfOrder(_ answer: String, _ written: Written) -> Bool {
        answer.hasPrefix("E") && written.term.mayFail
    }

    private func check(_ predicate: Predicate, _ values: [TestValue], _ answer: String, _ written: Written) {
        let verdict = predicate.verdict(values)
        oracle.count("verdicts")
        oracle.count("\(verdict)")
        let what = "\(written.sql) on \(values): PostgreSQL says \(answer), we say \(verdict)"
        switch (verdict, answer.prefix(2)) {
        case (.ask, _): oracle.count("asked")
        case (.notYes, let answer): #expect(answer != "Vt", "\(what)")
        case (.yes, "Vt"), (.failed, "E2"): break
        case (.no, "Vf"), (.unknown, "N"): break
        // Every term that can never be true becomes the same predicate.
        case (.no, "N"), (.no, "E2"):
            #expect(predicate == .never || isOfOrder(answer, written), "\(what)")
        // This difference is allowed only if the parts may be evaluated in another order.
        case (.yes, "E2"), (.no, _), (.unknown, _), (.failed, _):
            #expect(isOfOrder(answer, written) || predicate == .never && answer != "Vt", "\(what)")
            if verdict == .yes { oracle.count("yes for an error") }
        default: Issue.record("\(what)")
        }
        if predicate.asker == nil { #expect(verdict != .ask, "asks without an asker: \(what)") }
    }

    private func checkReach(_ predicate: Predicate, _ values: [TestValue], _ answer: String, _ written: Written) {
        let isReached = predicate.isReached(by: values)
        if answer == "Vt" { #expect(isReached, "not reached: \(written.sql) on \(values)") }
        if predicate.isDecidedByAccess, isReached {
            #expect(answer == "Vt" || isOfOrder(answer, written), "its keys alone: \(written.sql) on \(values)")
        }
    }
}
